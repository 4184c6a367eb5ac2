"""What the control data and the libraries need to use PostgreSQL: addresses, parameters, connections and their threads.
Read `connection` first. `errors` converts what the server reports."""
