"""The sandbox of the processes that read imported files: Landlock, a seccomp filter, namespaces and another user id.
Read `confinement` first."""
