"""`make attack`: an attack on a server of this machine, and the parts it consists of."""
