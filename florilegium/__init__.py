"""The public API for extensions. Import from its modules, and from nothing else of Florilegium:

- `florilegium.kinds`: declare a kind of item. Storage, search, export, forms and tools derive from the declaration.
- `florilegium.sources`: make items, stored or not, searchable next to the others, with tools and URIs of their own.
- `florilegium.importers`: read files of a format into a library.
- `florilegium.errors`: the errors that an extension may raise.
- `florilegium.testing`: open a library in a temporary folder, to test an extension.

A distribution announces what it adds through entry points; each group is one kind of extension:

    [project.entry-points."florilegium.kinds"]           # a `Kind`
    [project.entry-points."florilegium.sources"]         # a callable that takes the settings and returns a `Source`
    [project.entry-points."florilegium.importers"]       # an `Importer`
    [project.entry-points."florilegium.compatibility"]   # a callable that takes the runtime and returns routes
    [project.entry-points."florilegium.storage"]         # opens libraries; its name is a scheme of storage_url

`docs/plugins.md` is a guide of ten minutes.

Versions follow Semantic Versioning 2.0.0. What these modules list in `__all__`, the names of the groups and what the
objects behind them must provide change incompatibly only with a new major version; before that, a deprecated name stays
for at least one minor version and says what to use instead. New fields with defaults, new methods with an
implementation and new names can come with any minor version. Before 1.0, a minor version counts as a major one. All
other packages of Florilegium can change at any time. The last two groups hand over objects of the server, which are not
part of the promise yet.
"""
