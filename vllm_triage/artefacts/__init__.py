"""Artefacts: what lies beside a log, read as observations."""
