"""The collections of a library without their searches, independent of the storage engine. Read `collection` first."""
