#!/usr/bin/env python3
"""Makes sentence_piece.tokenizer.json and sentence_piece.json: a small SentencePiece-style BPE as Llama 2's, and what the package
`tokenizers` says for some texts. usage: make_sentence_piece.py (with tokenizers installed), in this folder
"""
import json
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers

TEXT = """The quick brown fox jumps over the lazy dog. Language models read tokens, and tokens are pieces of words. A piece that is seen
often becomes one token; a piece that is rare stays in parts. Привет мир, как дела? Съешь ещё этих мягких французских булок. 中文分词很有意思。
def main(args):\n    for i in range(10):\n        print(i, args[i])\n    return 0\n x = 3.14159; y = x ** 2 + 1  # comment
naïve café über straße ÀÉÎÕÜ  two  spaces   three    four""" * 20

byte_tokens = ["<0x%02X>" % b for b in range(256)]
t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
# Words are cut before spaces for training only, so that no token has a space inside; encoding sees whole texts.
from tokenizers import pre_tokenizers
t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="never", split=True)
trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens, limit_alphabet=90, show_progress=False)
t.train_from_iterator(TEXT.split("\n"), trainer)
spec = json.loads(t.to_str())
spec["pre_tokenizer"] = None
spec["added_tokens"] = [a for a in spec["added_tokens"] if a["id"] < 3]
for a in spec["added_tokens"]:
    a["normalized"] = False
with open("sentence_piece.tokenizer.json", "w", encoding="utf-8") as f:
    json.dump(spec, f, ensure_ascii=False, indent=0)
    f.write("\n")

t = Tokenizer.from_file("sentence_piece.tokenizer.json")
r = random.Random(5)
texts = ["", " ", "  ", "Hello", " Hello", "Hello world", "  two  spaces ", "The quick brown fox", "\u2581literal \u2581 mark", "日本語と中文", "tab\tand\nnewline",
         "é e\u0301 ß", "😀 👍🏽", "a" * 300, " " * 77, "x=3.14159;", "Привет, мир", "</s> is text here", "<0x41>", "\x00\x01"]
ALPHABET = ["the", " the", "qu", "ick", " ", "  ", "\u2581", "к", "ак", " де", "中", "文", "é", "ü", "😀", "\n", "1", "4159", "x", "print", "(", ")", "tok", "ens", "zzz", "\t", "Ж"]
texts += ["".join(r.choice(ALPHABET) for _ in range(r.randint(1, 40))) for _ in range(300)]
t.encode_special_tokens = True
cases = []
for text in texts:
    ids = t.encode(text, add_special_tokens=False).ids
    cases.append({"text": text, "ids": ids, "decoded": t.decode(ids)})
with open("sentence_piece.json", "w", encoding="utf-8") as f:
    json.dump({"cases": cases}, f, ensure_ascii=False, indent=0)
    f.write("\n")
