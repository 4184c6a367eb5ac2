"""Sessions: who they belong to, how long they live and what is kept between two calls. Read `store` first."""
