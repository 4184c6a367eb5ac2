"""The sandbox of the processes that read imported files: Landlock, a seccomp filter, namespaces and another user id."""

# `confinement.py` enters the layers one by one and reports which are missing; `seccomp.py` has the system calls. A flaw
# in a parser could otherwise read the files of every user, because the process would have the rights of the server.
