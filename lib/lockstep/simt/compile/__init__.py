"""The compiler: a kernel's syntax tree, once, into NumPy statements for all lanes of many blocks.

Read `source` (what the student wrote), `kinds` (what a value may be), `inference` and `expressions` (which kind each
value has), `liveness` (where a masked assignment must keep the other lanes' value), then `statements`,
`loops` and `values`, which write the Python that runs. `program` ties them together. What is not supported is refused by name and line.
"""
