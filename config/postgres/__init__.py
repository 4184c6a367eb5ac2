"""What the control data and the libraries need to use PostgreSQL: addresses, SQL, connections and their threads. Read
`connection` first. `sql` adds the schema to every statement, so that no statement can reach the tables of another user,
and `errors` converts what the server reports."""
