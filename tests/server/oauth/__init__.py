"""Tests of the authorization server over HTTP."""
