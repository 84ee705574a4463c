"""Makes tests/data/smollm2/endings.json: 200 items of HellaSwag's shape (a context and four
endings) and the log-probability of each ending, by transformers in float32.

    python3 -m venv VENV && VENV/bin/pip install torch transformers accelerate gguf
    VENV/bin/python tests/endings_reference.py SmolLM2-135M-Instruct.Q4_1.gguf

The texts are composed here and are under the licence of this project. transformers dequantises the
file when it loads it."""

import json
import os
import random
import sys

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
PEOPLE = ["A man", "A woman", "A young boy", "A girl", "An old man", "A teacher", "A tall woman",
          "A student", "The neighbour", "The host"]
# Title, what happens, and endings that go on from there.
SCENES = [
    ("Making tea", "stands in a kitchen and fills a kettle with water. Then", [
        "the kettle is put on the stove.", "hot water is poured over the tea leaves."]),
    ("Washing a car", "sprays a dusty car with a garden hose. After that", [
        "a soapy sponge is rubbed over the roof.", "the car is dried with a towel."]),
    ("Shovelling snow", "walks out of the house with a shovel. The snow", [
        "is thrown to the side of the driveway.", "is piled up beside the path."]),
    ("Playing the piano", "sits down on a bench in front of a piano. The fingers", [
        "move quickly over the keys.", "begin to play a slow melody."]),
    ("Painting a fence", "opens a can of white paint next to a fence. The brush", [
        "is dipped into the paint.", "moves up and down along the boards."]),
    ("Brushing teeth", "holds a toothbrush under the tap. Some toothpaste", [
        "is squeezed onto the brush.", "foams in the mouth and is rinsed out."]),
    ("Baking bread", "kneads a ball of dough on a wooden table. The dough", [
        "is put into a warm oven.", "is left to rise under a cloth."]),
    ("Fishing", "sits in a small boat with a fishing rod. The line", [
        "is pulled in with a fish on the hook.", "is cast far out into the lake."]),
    ("Cutting grass", "pushes a mower across the lawn. The grass", [
        "is cut short in long stripes.", "is raked into a heap."]),
    ("Climbing", "ties a rope to a belt and looks up at a rock wall. The climber", [
        "reaches for the next hold.", "pulls up slowly to the top."]),
    ("Riding a horse", "puts a saddle on a brown horse. The horse", [
        "trots around the field with its rider.", "jumps over a low fence."]),
    ("Sewing", "threads a needle and picks up a torn shirt. The hole", [
        "is closed with small stitches.", "is covered with a patch of cloth."]),
    ("Skiing", "stands at the top of a snowy hill on skis. With a push", [
        "the skis begin to slide down the slope.", "they race down between the trees."]),
    ("Grilling meat", "lights the charcoal in a grill. The steaks", [
        "are turned over with a pair of tongs.", "are laid on the hot grate."]),
    ("Changing a tyre", "kneels beside a car with a flat tyre. The wheel", [
        "is taken off with a wrench.", "is lifted up with a jack."]),
    ("Building a tent", "unrolls a tent on the grass. The poles", [
        "are pushed through the loops of the tent.", "are set up to hold the roof."]),
    ("Playing tennis", "walks onto a court with a racket. The ball", [
        "is hit over the net.", "bounces twice behind the line."]),
    ("Wrapping a present", "places a small box on a sheet of paper. The paper", [
        "is folded around the box.", "is held together with tape and a ribbon."]),
    ("Feeding birds", "sits on a park bench with a bag of crumbs. The birds", [
        "gather around the bench and eat.", "fly down from the trees."]),
    ("Reading aloud", "opens a thick book in front of the children. The story", [
        "begins with a king and his three sons.", "makes all of them laugh."]),
]


def compose():
    """Items in a fixed order: the right ending at a drawn place among three of other scenes."""
    draw = random.Random(20)
    items = []
    for person in PEOPLE:
        for number, (title, happens, endings) in enumerate(SCENES):
            others = draw.sample([scene for i, scene in enumerate(SCENES) if i != number], 3)
            made = [draw.choice(scene[2]) for scene in others]
            label = draw.randrange(4)
            made.insert(label, draw.choice(endings))
            items.append({"id": len(items), "context": f"{title}: {person} {happens}",
                          "endings": made, "label": label})
    return items


def score(model, tokenizer, item):
    item["context_ids"] = tokenizer(item["context"], add_special_tokens=False).input_ids
    item["ending_ids"], item["logprobs"], item["greedy"] = [], [], []
    for ending in item["endings"]:
        whole = tokenizer(item["context"] + " " + ending, add_special_tokens=False).input_ids
        first = len(item["context_ids"])
        assert whole[:first] == item["context_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([whole])).logits[0, first - 1:-1]
        scored = torch.tensor(whole[first:])
        taken = torch.log_softmax(logits, -1).gather(1, scored[:, None]).double()
        item["ending_ids"].append(whole[first:])
        item["logprobs"].append(round(taken.sum().item(), 6))
        item["greedy"].append(bool((logits.argmax(-1) == scored).all()))


def main():
    folder, name = os.path.split(os.path.realpath(sys.argv[1]))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    items = compose()
    for item in items:
        score(model, tokenizer, item)
    meta = {"model": name, "dtype": "float32", "attention": "eager",
            "transformers": transformers.__version__, "torch": torch.__version__}
    path = os.path.join(HERE, "data", "smollm2", "endings.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"meta": ' + json.dumps(meta) + ', "items": [\n')
        file.write(",\n".join(json.dumps(item) for item in items) + "\n]}\n")


if __name__ == "__main__":
    main()
