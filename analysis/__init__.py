"""Ask a dataset and its runs what the model was fed: views for SQL, audits, studies."""
