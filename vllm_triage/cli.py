"""stub"""
import sys
from vllm_triage.pipeline import triage_paths
def main():
    r=triage_paths([a for a in sys.argv[1:] if not a.startswith("--") and a!="json"])
    print(r.model_dump_json()); sys.exit(0)
