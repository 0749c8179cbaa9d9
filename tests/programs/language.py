"""Sequences: attention, recurrence, embeddings, structured losses."""

import math

import numpy as np

from .harness import normal, program, weighted, whole


def _steps(torch, compile, optimizer, loss_of, batches):
    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile(step)
    return [step(*map(torch.from_numpy, batch)).item() for batch in batches]


def _gpt(torch, width=8, heads=2, vocabulary=11, length=6):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.proj = nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.register_buffer("mask", torch.tril(torch.ones(length, length)).bool(), persistent=False)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
            q, k, v = (z.view(b, t, heads, c // heads).transpose(1, 2) for z in (q, k, v))
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // heads)
            scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
            y = (scores.softmax(dim=-1) @ v).transpose(1, 2).contiguous().view(b, t, c)
            x = x + self.proj(y)
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.places = nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(2)])
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)
            self.head.weight = self.tokens.weight  # tied

        def forward(self, ids):
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return weighted(torch, GPT())


@program
def gpt(torch, compile):
    model = _gpt(torch)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=0.01, betas=(0.9, 0.95)
    )

    def loss_of(ids):
        logits = model(ids[:, :-1])
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1))

    return _steps(torch, compile, optimizer, loss_of, [(whole(11, 2, 7, seed=i),) for i in range(4)])


@program(compiled=False)
def greedy_generation(torch, compile):
    model = _gpt(torch)
    ids = torch.tensor([[1, 2]], dtype=torch.long)
    found = []
    with torch.no_grad():
        while ids.shape[1] < 6:
            logits = model(ids)[:, -1]
            found += logits.topk(2).values.flatten().tolist()
            ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return found + ids.flatten().tolist()


@program
def transformer_encoder_with_padding(torch, compile):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0, batch_first=True, norm_first=True)
    model = weighted(torch, nn.ModuleDict({
        "embed": nn.Embedding(11, 8, padding_idx=0),
        "encoder": nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False),
        "head": nn.Linear(8, 3),
    }))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss_of(ids, y):
        padding = ids == 0
        x = model["encoder"](model["embed"](ids), src_key_padding_mask=padding)
        keep = (~padding).unsqueeze(-1)
        pooled = (x * keep).sum(1) / keep.sum(1)
        return nn.functional.cross_entropy(model["head"](pooled), y)

    batches = []
    for i in range(3):
        ids = whole(10, 4, 6, seed=i) + 1
        ids[1, 4:] = 0
        ids[2, 2:] = 0
        batches.append((ids, whole(3, 4, seed=i)))
    return _steps(torch, compile, optimizer, loss_of, batches)


@program
def attention_with_rotations(torch, compile):
    nn = torch.nn
    width, heads, length = 8, 2, 5
    model = weighted(torch, nn.ModuleDict({"qkv": nn.Linear(8, 24), "out": nn.Linear(8, 8), "norm": nn.RMSNorm(8)}))
    angles = torch.arange(length)[:, None] * (100.0 ** (-torch.arange(0, 4, 2) / 4))[None]
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def rotate(x):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-b, a], dim=-1) * sin

    def loss_of(x, y):
        b = x.shape[0]
        qkv = model["qkv"](model["norm"](x)).view(b, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        out = nn.functional.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return nn.functional.mse_loss(x + model["out"](out.transpose(1, 2).flatten(2)), y)

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    return _steps(
        torch, compile, optimizer, loss_of, [(normal(2, 5, 8, seed=i), normal(2, 5, 8, seed=i + 9)) for i in range(4)]
    )


@program(compiled=False)
def lstm_with_truncated_history(torch, compile):
    nn = torch.nn
    lstm = nn.LSTM(4, 8, num_layers=2, batch_first=True)
    model = weighted(torch, nn.ModuleDict({"embed": nn.Embedding(7, 4), "lstm": lstm, "head": nn.Linear(8, 7)}))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ids = torch.from_numpy(whole(7, 2, 13))
    state, found = None, []
    for start in range(0, 12, 4):
        x, y = ids[:, start : start + 4], ids[:, start + 1 : start + 5]
        if state is not None:
            state = tuple(s.detach() for s in state)
        out, state = model["lstm"](model["embed"](x), state)
        loss = nn.functional.cross_entropy(model["head"](out).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        found += [loss.item(), nn.utils.clip_grad_norm_(model.parameters(), 0.5).item()]
        optimizer.step()
    return found


@program(compiled=False)
def packed_gru(torch, compile):
    from importlib import import_module

    rnn = import_module(f"{torch.__name__}.nn.utils.rnn")
    nn = torch.nn
    gru = nn.GRU(3, 5, bidirectional=True)
    model = weighted(torch, nn.ModuleDict({"gru": gru, "head": nn.Linear(10, 2)}))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    found = []
    for i in range(3):
        sequences = [torch.from_numpy(normal(n, 3, seed=i)) for n in (4, 2, 3)]
        packed = rnn.pack_padded_sequence(rnn.pad_sequence(sequences), torch.tensor([4, 2, 3]), enforce_sorted=False)
        out, last = model["gru"](packed)
        padded, lengths = rnn.pad_packed_sequence(out)
        logits = model["head"](torch.cat([last[0], last[1]], dim=-1))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(whole(2, 3, seed=i))) + padded.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [loss.item(), *lengths.tolist()]
    return found


@program
def translation_with_teacher(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.ModuleDict({
        "source": nn.Embedding(9, 4), "target": nn.Embedding(9, 4), "encoder": nn.GRUCell(4, 6),
        "decoder": nn.GRUCell(10, 6), "head": nn.Linear(6, 9),
    }))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def loss_of(source, target):
        h = torch.zeros(source.shape[0], 6)
        states = []
        for t in range(source.shape[1]):
            h = model["encoder"](model["source"](source[:, t]), h)
            states.append(h)
        memory = torch.stack(states, dim=1)
        loss = 0
        for t in range(target.shape[1] - 1):
            weight = torch.softmax(torch.einsum("bh,bth->bt", h, memory), dim=-1)
            context = torch.einsum("bt,bth->bh", weight, memory)
            h = model["decoder"](torch.cat([model["target"](target[:, t]), context], dim=-1), h)
            loss = loss + nn.functional.cross_entropy(model["head"](h), target[:, t + 1])
        return loss / (target.shape[1] - 1)

    batches = [(whole(9, 2, 3, seed=i), whole(9, 2, 4, seed=i + 50)) for i in range(3)]
    return _steps(torch, compile, optimizer, loss_of, batches)


@program
def skip_grams(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.ModuleDict({"word": nn.Embedding(13, 4), "context": nn.Embedding(13, 4)}))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.5)

    def loss_of(word, context, negative):
        w = model["word"](word)
        good = (w * model["context"](context)).sum(-1)
        bad = torch.bmm(model["context"](negative), w.unsqueeze(2)).squeeze(2)
        return -(nn.functional.logsigmoid(good).mean() + nn.functional.logsigmoid(-bad).sum(1).mean())

    batches = [(whole(13, 6, seed=i), whole(13, 6, seed=i + 9), whole(13, 6, 3, seed=i)) for i in range(4)]
    return _steps(torch, compile, optimizer, loss_of, batches)


@program(compiled=False)
def sparse_bag_of_words(torch, compile):
    nn = torch.nn
    bag = weighted(torch, nn.EmbeddingBag(13, 4, mode="mean", sparse=True))
    head = weighted(torch, nn.Linear(4, 3), 1)
    optimizers = [torch.optim.SparseAdam(list(bag.parameters()), lr=0.05), torch.optim.SGD(head.parameters(), lr=0.1)]
    found = []
    for i in range(4):
        ids, offsets = torch.from_numpy(whole(13, 10, seed=i)), torch.tensor([0, 3, 7], dtype=torch.long)
        loss = nn.functional.cross_entropy(head(bag(ids, offsets)), torch.from_numpy(whole(3, 3, seed=i)))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        found.append(loss.item())
    return found


@program(compiled=False)  # ctc_loss reads the lengths
def speech_by_ctc(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 5, 1)))
    loss_fn = nn.CTCLoss(blank=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    lengths, sizes = torch.tensor([8, 6]), torch.tensor([3, 2])

    def loss_of(x, y):
        return loss_fn(model(x).permute(2, 0, 1).log_softmax(2), y, lengths, sizes)

    batches = [(normal(2, 3, 8, seed=i), whole(4, 2, 3, seed=i) + 1) for i in range(3)]
    return _steps(torch, compile, optimizer, loss_of, batches)


@program
def conditional_random_field(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.ModuleDict({"embed": nn.Embedding(9, 4), "head": nn.Linear(4, 3)}))
    transitions = nn.Parameter(torch.from_numpy(normal(3, 3)))
    optimizer = torch.optim.SGD([*model.parameters(), transitions], lr=0.1)

    def loss_of(ids, tags):
        scores = model["head"](model["embed"](ids))
        alpha = scores[:, 0]
        for t in range(1, ids.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + transitions[None], dim=1) + scores[:, t]
        gold = scores.gather(2, tags[:, :, None]).squeeze(2).sum(1) + transitions[tags[:, :-1], tags[:, 1:]].sum(1)
        return (torch.logsumexp(alpha, dim=1) - gold).mean()

    batches = [(whole(9, 3, 5, seed=i), whole(3, 3, 5, seed=i)) for i in range(4)]
    return _steps(torch, compile, optimizer, loss_of, batches)


@program
def mixture_of_experts(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.ModuleDict({
        "gate": nn.Linear(6, 3), "experts": nn.ModuleList(nn.Linear(6, 4) for _ in range(3)), "head": nn.Linear(4, 1),
    }))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    def loss_of(x, y):
        gates = torch.softmax(model["gate"](x), dim=-1)
        top, chosen = gates.topk(2, dim=-1)
        top = top / top.sum(-1, keepdim=True)
        weight = torch.zeros_like(gates).scatter(1, chosen, top)
        out = torch.stack([expert(x) for expert in model["experts"]], dim=1)
        mixed = (weight.unsqueeze(-1) * out).sum(1)
        balance = (gates.mean(0) * (weight > 0).float().mean(0)).sum() * 3
        return nn.functional.mse_loss(model["head"](mixed.tanh()).squeeze(-1), y) + 0.1 * balance

    batches = [(normal(8, 6, seed=i), normal(8, seed=i)) for i in range(4)]
    return _steps(torch, compile, optimizer, loss_of, batches)


@program
def hierarchical_softmax_over_words(torch, compile):
    nn = torch.nn
    model = weighted(torch, nn.ModuleDict({
        "embed": nn.Embedding(12, 8), "loss": nn.AdaptiveLogSoftmaxWithLoss(8, 12, cutoffs=[4, 8]),
    }))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def loss_of(x, y):
        return model["loss"](model["embed"](x), y).loss

    y = np.arange(12)
    return _steps(torch, (lambda step: step), optimizer, loss_of, [(whole(12, 12, seed=i), y) for i in range(3)])
