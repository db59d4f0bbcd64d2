'use strict';
// The Transformer of "Attention Is All You Need" translates a sentence.
//
// Each block stands under the number of its section. The Python package defines what is
// computed: tests/exchange/test_page.py compares pieces, tokens, scores and weights.
//
// Activations [T, D] are an array of T rows, each a Float32Array. A weight [O, I] is one
// Float32Array, row after row. T positions, D d_model, I inputs, O outputs.

const [PAD, EOS, BOS, UNK] = [0, 1, 2, 3];
const AS_TRAINED = {mask: true, positions: true, scale: true, off: ''};

// Returns a page's model. Its parameters are bfloat16 in base64, `tree` has their spans.
function load(json) {
  const model = JSON.parse(json), bytes = atob(model.parameters);
  const words = new Uint32Array(bytes.length / 2);
  for (let i = 0; i < words.length; i++)
    words[i] = (bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8) << 16;
  const numbers = new Float32Array(words.buffer);
  const view = tree => Array.isArray(tree) ? numbers.subarray(...tree)
    : Object.fromEntries(Object.entries(tree).map(([name, part]) => [name, view(part)]));
  const [source, target = source] = model.vocabularies.map(v => new Vocabulary(v));
  return {...model, parameters: view(model.tree), source, target};
}

// 5.1 Vocabulary: SentencePiece's byte pairs or unigrams, or whole words
class Vocabulary {
  constructor({type, pieces, scores, bytes, nfc}) {
    Object.assign(this, {type, pieces, scores, bytes, nfc});  // bytes: the id of byte 0
    this.ids = new Map(pieces.map((piece, id) => [piece, id]).slice(UNK + 1));
    this.longest = Math.max(...pieces.map(piece => piece.length));
  }

  // Returns a text's ids, without EOS.
  encode(text) {
    text = text.replaceAll('\0', ' ').replace(/^[\s\x1c-\x1f\x85]+|[\s\x1c-\x1f\x85]+$/g, '');
    if (this.nfc) text = text.normalize('NFC');
    const words = text.split(' ').filter(Boolean).map(word => '▁' + word);
    if (this.type === 'word') return words.map(word => this.ids.get(word) ?? UNK);
    const characters = [...words.join('')];
    const parts = this.type === 'bpe' ? this.merge(characters) : this.viterbi(characters);
    return parts.flatMap(part => this.ids.get(part) ?? this.spell(part))
      .filter((id, i, ids) => id !== UNK || ids[i - 1] !== UNK);  // a run has one UNK
  }

  spell(part) {
    if (this.bytes === null) return UNK;
    return [...new TextEncoder().encode(part)].map(byte => this.bytes + byte);
  }

  // Returns characters merged to pieces: of all pairs, always the one learned first.
  merge(parts) {
    const id = i => i + 1 < parts.length && this.ids.get(parts[i] + parts[i + 1]);
    const score = i => this.scores[id(i)] ?? -Infinity;
    const scores = parts.map((_, i) => score(i));
    for (;;) {
      let best = 0;
      for (let i = 1; i < scores.length; i++) if (scores[i] > scores[best]) best = i;
      if (!(scores[best] > -Infinity)) return parts;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
      scores.splice(best + 1, 1);
      scores[best] = score(best);
      if (best > 0) scores[best - 1] = score(best - 1);
    }
  }

  // Returns the pieces whose scores (log P) have the largest sum.
  viterbi(characters) {
    const unknown = Math.min(...this.scores.slice(UNK + 1)) - 10;
    const best = [{score: 0, parts: []}];  // of the first characters of the text
    characters.forEach((_, start) => {
      for (let end = start + 1, part = ''; end <= characters.length; end++) {
        part += characters[end - 1];
        if (part.length > this.longest && end > start + 1) break;
        const own = this.scores[this.ids.get(part)] ?? (end > start + 1 ? NaN : unknown);
        const score = best[start].score + own;
        if (score > (best[end]?.score ?? -Infinity)) best[end] = {score, part, start};
      }
    });
    const parts = [];
    for (let end = characters.length; end > 0; end = best[end].start) parts.unshift(best[end].part);
    return parts;
  }

  // Returns the text of ids up to EOS.
  decode(ids) {
    const bytes = ids.filter(id => id !== EOS).flatMap(id => {
      const byte = this.bytes === null ? NaN : id - this.bytes;
      if (byte >= 0 && byte < 256) return [byte];
      return [...new TextEncoder().encode(id === UNK ? ' \u2047 ' : this.pieces[id])];
    });
    const text = new TextDecoder().decode(Uint8Array.from(bytes));
    return this.type === 'word' ? text.replaceAll('▁', ' ').trim().replace(/ +/g, ' ')
      : text.replace(/^▁+/, '').replaceAll('▁', ' ');
  }
}

// Returns x W^T + b: a row [I] of x becomes a row [O].
function linear(x, W, b) {
  return x.map(row => {
    const I = row.length, product = new Float32Array(W.length / I);
    for (let o = 0, n = 0; o < product.length; o++) {
      let s = b ? b[o] : 0, t = 0, u = 0, v = 0, i = 0;
      for (; i + 3 < I; i += 4, n += 4) {  // four sums at a time: a processor waits less
        s += row[i] * W[n], t += row[i + 1] * W[n + 1];
        u += row[i + 2] * W[n + 2], v += row[i + 3] * W[n + 3];
      }
      for (; i < I; i++) s += row[i] * W[n++];
      product[o] = s + t + u + v;
    }
    return product;
  });
}

const sum = numbers => numbers.reduce((total, number) => total + number, 0);

class Transformer {
  // `switches` are AS_TRAINED or others; `off` names a layer ('encoder.2', from 0) or a
  // head ('cross.2.5'). Each attention adds its rows to `weights`.
  constructor(model, switches) {
    Object.assign(this, model.parameters, {sizes: model.sizes, switches});
    this.weights = {encoder: [], decoder: [], cross: []};
  }

  // 3.4 Embeddings, 3.5 Positional encoding
  embed(stack, ids, first) {
    const D = this.sizes.d_model, learned = this[`${stack}_positions`];
    const table = stack === 'source' && this.source_embedding || this.embedding;
    const encoding = (position, j) => {
      if (learned) return learned[position * D + j];
      const angle = position / 10000 ** ((j - j % 2) / D);
      return j % 2 ? Math.cos(angle) : Math.sin(angle);
    };
    return ids.map((id, t) => table.slice(id * D, (id + 1) * D).map((value, j) =>
      value * D ** 0.5 + (this.switches.positions ? encoding(first + t, j) : 0)));
  }

  // 3.2 Attention: MultiHead(x, memory, memory). Row t sees the first visible(t) keys.
  attention(kind, n, p, x, memory, visible) {
    const {h, d_k, d_v} = this.sizes;
    const scale = this.switches.scale ? d_k ** -0.5 : 1;
    const q = linear(x, p.query), heads = x.map(() => new Float32Array(h * d_v));
    for (let head = 0; head < h; head++) {
      for (let t = 0; t < x.length; t++) {
        const scores = new Float64Array(visible(t));
        for (let m = 0; m < scores.length; m++)
          for (let i = head * d_k; i < (head + 1) * d_k; i++)
            scores[m] += scale * q[t][i] * memory.k[m][i];
        const max = Math.max(...scores), exp = scores.map(score => Math.exp(score - max));
        const total = sum(exp), weights = new Float32Array(memory.k.length);
        weights.set(exp.map(e => e / total));  // equation 1
        this.weights[kind].push(weights);
        if (this.switches.off === `${kind}.${n}.${head}`) continue;
        for (let m = 0; m < scores.length; m++)
          for (let i = head * d_v; i < (head + 1) * d_v; i++)
            heads[t][i] += weights[m] * memory.v[m][i];
      }
    }
    return linear(heads, p.output);
  }

  // Returns keys and values of rows x, after those of earlier positions.
  memory(p, x, past = {k: [], v: []}) {
    return {k: past.k.concat(linear(x, p.key)), v: past.v.concat(linear(x, p.value))};
  }

  // 3.3 Position-wise feed-forward networks: max(0, x W_1 + b_1) W_2 + b_2
  feedForward({inner, outer}, x) {
    const hidden = linear(x, inner.kernel, inner.bias);
    return linear(hidden.map(row => row.map(z => Math.max(0, z))), outer.kernel, outer.bias);
  }

  // 3.1 Encoder and decoder stacks: LayerNorm(x + sublayer)
  addAndNorm({norm: {scale, bias}}, x, sublayer) {
    return x.map((row, t) => {
      const z = row.map((value, i) => value + sublayer[t][i]), mean = sum(z) / z.length;
      const deviation = Math.sqrt(sum(z.map(v => (v - mean) ** 2)) / z.length + 1e-6);
      return z.map((v, i) => (v - mean) / deviation * scale[i] + bias[i]);
    });
  }

  // Returns the output of layer n of a stack. A decoder's layer also takes `source`.
  layer(stack, n, p, x, own, visible, source) {
    if (this.switches.off === `${stack}.${n}`) return x;
    x = this.addAndNorm(p.attention_norm, x, this.attention(stack, n, p.attention, x, own, visible));
    if (source) {
      const all = () => source.k.length;
      x = this.addAndNorm(p.cross_norm, x, this.attention('cross', n, p.cross, x, source, all));
    }
    return this.addAndNorm(p.feed_forward_norm, x, this.feedForward(p.feed_forward, x));
  }

  // Returns, for each layer of the decoder, keys and values of the encoder's output.
  encode(ids) {
    let x = this.embed('source', ids, 0);
    Object.values(this.encoder).forEach((p, n) => {
      x = this.layer('encoder', n, p, x, this.memory(p.attention, x), () => ids.length);
    });
    return Object.values(this.decoder).map(p => this.memory(p.cross, x));
  }

  // Returns the logits [W] after the last of `ids`, and the cache with their keys and
  // values; `cache` has those of the positions before.
  decode(ids, source, cache = []) {
    const first = cache[0]?.k.length ?? 0, next = [];
    const visible = t => first + (this.switches.mask ? t + 1 : ids.length);
    let x = this.embed('target', ids, first);
    Object.values(this.decoder).forEach((p, n) => {
      next.push(this.memory(p.attention, x, cache[n]));
      x = this.layer('decoder', n, p, x, next[n], visible, source[n]);
    });
    return [linear(x.slice(-1), this.embedding)[0], next];
  }
}

// 6.1 Beam search

// Returns the `count` tokens with the largest logits, best first, each with its log P.
function topTokens(logits, count) {
  const best = [];
  logits.forEach((logit, token) => {
    if (token === PAD || token === BOS || !(logit > (logits[best[count - 1]] ?? -Infinity))) return;
    let place = best.length;
    while (place > 0 && logits[best[place - 1]] < logit) place--;
    best.splice(place, 0, token);
    best.length = Math.min(best.length, count);
  });
  const max = Math.max(logits[best[0]], logits[PAD], logits[BOS]);
  const normalizer = max + Math.log(sum(logits.map(z => Math.exp(z - max))));
  return best.map(token => [token, logits[token] - normalizer]);
}

// Yields progress from 0 to 1; returns the best hypothesis, and each step's candidates.
// The score is log P(Y) / ((5 + |Y|) / 6)^alpha.
function* search(transformer, ids, limit, beam, alpha) {
  const penalty = length => ((5 + length) / 6) ** alpha, steps = [];
  const source = transformer.encode(ids), {mask} = transformer.switches;
  let live = [{tokens: [], log_p: 0}], best = {score: -Infinity, tokens: []};
  for (let length = 1; length <= limit; length++) {
    yield length / limit;
    const candidates = live.flatMap(({tokens, log_p, cache, index}) => {
      const input = [BOS, ...tokens];
      // Without the mask earlier positions see the newest too: all are computed anew.
      const [logits, next] = mask ? transformer.decode(input.slice(-1), source, cache)
        : transformer.decode(input, source);
      return topTokens(logits, 2 * beam).map(([token, of_token]) => ({
        tokens: [...tokens, token], log_p: log_p + of_token, cache: next,
        shown: {token, parent: index, p: Math.exp(of_token), log_p: log_p + of_token}}));
    }).sort((a, b) => b.log_p - a.log_p).slice(0, beam > 1 ? 2 * beam : 1);
    live = [];
    candidates.forEach((candidate, index) => {
      const {shown, tokens, log_p} = candidate;
      if (shown.token !== EOS) {
        shown.kept = live.length < beam;
        if (shown.kept) live.push({...candidate, index});
      } else {
        shown.score = log_p / penalty(length);
        if (shown.score > best.score) best = {score: shown.score, tokens, log_p, finished: true};
      }
    });
    steps.push(candidates.map(({shown}) => shown));
    // No live hypothesis can reach a better score than this.
    const reachable = live[0]?.log_p / Math.max(penalty(length + 1), penalty(limit));
    if (!live.length || best.score >= reachable) break;
  }
  if (!best.finished && live.length) {
    const {tokens, log_p} = live[0];
    best = {tokens, log_p, score: log_p / penalty(limit)};
  }
  return {best, steps};
}

// Yields progress; returns the translation, its notices, and the weights of all heads.
function* translate(model, text, {switches = AS_TRAINED, beam = model.beam, alpha = model.alpha} = {}) {
  const ids = model.source.encode(text), {longest} = model, notices = [];
  const bytes = model.source.bytes ?? Infinity;
  if (ids.some(id => id === UNK || id >= bytes && id < bytes + 256))
    notices.push('characters outside the vocabulary');
  if (ids.length >= longest) notices.push(`cut to the ${longest - 1} pieces that fit`);
  if (!ids.length) return {text: '', source: [], target: [], score: 0, steps: [], notices};
  const source = [...ids.slice(0, longest - 1), EOS];
  const limit = Math.min(source.length + model.extra_length, model.max_positions ?? Infinity);
  const {best, steps} = yield* search(new Transformer(model, switches), source, limit, beam, alpha);
  if (!best.tokens.length) throw Error('no translation has a finite score: training has diverged');
  if (!best.finished) notices.push('cut at the length limit, without an end');
  if (-best.log_p > (model.nats ?? Infinity) * best.tokens.length)
    notices.push(`less probable than references of dev; is the text in ${model.language}, ` +
      'and like the text of training?');
  const target = best.finished ? best.tokens : [...best.tokens, EOS];
  return {text: model.target.decode(best.tokens), source, target, steps, notices, ...best};
}

// Returns the weights [N, h, T, S] of each kind, row after row.
function attentionWeights(model, switches, source, target) {
  const transformer = new Transformer(model, switches);
  transformer.decode([BOS, ...target.slice(0, -1)], transformer.encode(source));
  return transformer.weights;
}
