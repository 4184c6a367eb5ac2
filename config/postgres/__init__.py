"""What the control data and the libraries need to use PostgreSQL: addresses, SQL, connections and their threads."""
