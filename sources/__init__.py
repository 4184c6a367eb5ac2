"""The five sources of a library, behind one protocol; the engines that store them stay inside."""
