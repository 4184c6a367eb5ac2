"""Tests of the authorization server without HTTP."""
