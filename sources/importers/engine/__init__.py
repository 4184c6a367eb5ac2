"""What every importer uses: file discovery, the import runner, and readers for common containers."""
