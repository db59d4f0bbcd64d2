'use strict';
// The Transformer of "Attention Is All You Need" translates a sentence. Each block stands
// under the number of its section. The Python package defines what is computed, and
// tests/exchange/test_page.py compares pieces, tokens, scores and weights.
//
// Activations [T, D] are an array of T rows, each a Float32Array. A weight [O, I] is one
// Float32Array, row after row. T positions, D d_model, I inputs, O outputs.

const [PAD, EOS, BOS, UNK] = [0, 1, 2, 3];
const MOST_SHOWN = 128;  // pieces of a sentence whose attention is shown, as in Python

// Returns a page's model. Its parameters are bfloat16: all low bytes, then all high bytes,
// compressed with zlib, in base64. `tree` has their spans.
async function load(json) {
  const model = JSON.parse(json), text = atob(model.parameters);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < packed.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const words = new Uint32Array(bytes.length / 2);
  for (let i = 0; i < words.length; i++)
    words[i] = (bytes[i] | bytes[words.length + i] << 8) << 16;
  const numbers = new Float32Array(words.buffer);
  const view = tree => Array.isArray(tree) ? numbers.subarray(...tree)
    : Object.fromEntries(Object.entries(tree).map(([name, part]) => [name, view(part)]));
  const [source, target = source] = model.vocabularies.map(v => new Vocabulary(v));
  return {...model, parameters: view(model.tree), source, target};
}

// 5.1 Vocabulary: byte pairs, as SentencePiece merges them
class Vocabulary {
  constructor(vocabulary) {
    Object.assign(this, vocabulary);  // pieces, scores, bytes (the id of byte 0), nfc, lowercase
    this.ids = new Map(this.pieces.map((piece, id) => [piece, id]).slice(UNK + 1));
  }

  // Returns a text's ids, without EOS.
  encode(text) {
    text = text.replaceAll('\0', ' ').replace(/^[\s\x1c-\x1f\x85]+|[\s\x1c-\x1f\x85]+$/g, '');
    if (this.lowercase) text = text.toLowerCase();
    if (this.nfc) text = text.normalize('NFC');
    const words = text.split(' ').filter(Boolean).map(word => '▁' + word);
    const characters = [...words.join('')];
    const spell = part => this.bytes === null ? UNK
      : [...new TextEncoder().encode(part)].map(byte => this.bytes + byte);
    return this.merge(characters).flatMap(part => this.ids.get(part) ?? spell(part))
      .filter((id, i, ids) => id !== UNK || ids[i - 1] !== UNK);  // a run has one UNK
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

  // Returns the text of ids, without EOS.
  decode(ids) {
    const bytes = ids.filter(id => id !== EOS).flatMap(id => {
      const byte = this.bytes === null ? NaN : id - this.bytes;
      if (byte >= 0 && byte < 256) return [byte];
      return [...new TextEncoder().encode(id === UNK ? ' \u2047 ' : this.pieces[id])];
    });
    const text = new TextDecoder().decode(Uint8Array.from(bytes));
    return text.replace(/^▁+/, '').replaceAll('▁', ' ');
  }
}

// Returns x W^T + b: a row [I] of x becomes a row [O].
function linear(x, W, b) {
  return x.map(row => {
    const I = row.length, product = new Float32Array(W.length / I);
    for (let o = 0, n = 0; o < product.length; o++) {
      let total = b ? b[o] : 0;
      for (let i = 0; i < I; i++) total += row[i] * W[n++];
      product[o] = total;
    }
    return product;
  });
}

const sum = numbers => numbers.reduce((total, number) => total + number, 0);

function softmax(scores) {
  const max = Math.max(...scores), exp = scores.map(score => Math.exp(score - max));
  const total = sum(exp);
  return exp.map(e => e / total);
}

class Transformer {
  // `off` names what is left out: 'mask', 'positions', 'scale', a layer ('encoder.2', from
  // 0) or a head ('cross.2.5'). All attentions append their weights to `weights`, if any.
  constructor(model, off, weights) {
    Object.assign(this, model.parameters, {sizes: model.sizes, weights});
    this.isOff = name => off.includes(name);
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
      value * D ** 0.5 + (this.isOff('positions') ? 0 : encoding(first + t, j))));
  }

  // 3.2 Attention: MultiHead(x, memory, memory). Row t sees the first visible(t) keys.
  attention(kind, n, p, x, memory, visible) {
    const {h, d_k, d_v} = this.sizes;
    const scale = this.isOff('scale') ? 1 : d_k ** -0.5;
    const q = linear(x, p.query), heads = x.map(() => new Float32Array(h * d_v));
    for (let head = 0; head < h; head++) {
      for (let t = 0; t < x.length; t++) {
        const scores = new Float64Array(visible(t));
        for (let m = 0; m < scores.length; m++) {
          let score = 0;
          const query = q[t], key = memory.k[m];
          for (let i = head * d_k; i < (head + 1) * d_k; i++) score += query[i] * key[i];
          scores[m] = scale * score;
        }
        const weights = new Float32Array(memory.k.length);
        weights.set(softmax(scores));
        this.weights?.[kind].push(...weights);
        if (this.isOff(`${kind}.${n}.${head}`)) continue;
        for (let m = 0; m < scores.length; m++) {
          const output = heads[t], value = memory.v[m], weight = weights[m];
          for (let i = head * d_v; i < (head + 1) * d_v; i++) output[i] += weight * value[i];
        }
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
    let y = this.attention(stack, n, p.attention, x, own, visible);
    y = this.addAndNorm(p.attention_norm, x, y);
    if (source) {
      const z = this.attention('cross', n, p.cross, y, source, () => source.k.length);
      y = this.addAndNorm(p.cross_norm, y, z);
    }
    y = this.addAndNorm(p.feed_forward_norm, y, this.feedForward(p.feed_forward, y));
    return this.isOff(`${stack}.${n}`) ? x : y;
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
    const visible = t => first + (this.isOff('mask') ? ids.length : t + 1);
    let x = this.embed('target', ids, first);
    Object.values(this.decoder).forEach((p, n) => {
      next.push(this.memory(p.attention, x, cache[n]));
      x = this.layer('decoder', n, p, x, next[n], visible, source[n]);
    });
    return [linear(x.slice(-1), this.embedding)[0], next];
  }
}

// 6.1 Beam search

// Returns the tokens with the `count` largest logits, and up to two more, best first, each
// with its log P.
function topTokens(logits, count) {
  const sorted = logits.slice().sort(), max = sorted.at(-1);
  const least = sorted.at(-count - 2) ?? -Infinity;  // two more: PAD and BOS are left out
  const normalizer = max + Math.log(sum(logits.map(z => Math.exp(z - max))));
  return [...logits.keys()]
    .filter(token => token !== PAD && token !== BOS && logits[token] >= least)
    .sort((a, b) => logits[b] - logits[a]).map(token => [token, logits[token] - normalizer]);
}

// Yields progress from 0 to 1; returns the best hypothesis, and each step's candidates.
// The score is log P(Y) / ((5 + |Y|) / 6)^alpha.
function* search(transformer, ids, limit, beam, alpha) {
  const penalty = length => ((5 + length) / 6) ** alpha, steps = [];
  const source = transformer.encode(ids), isCausal = !transformer.isOff('mask');
  let live = [{tokens: [], log_p: 0}], best = {tokens: [], score: -Infinity};
  for (let length = 1; length <= limit; length++) {
    yield length / limit;
    const candidates = live.flatMap(from => {
      const input = [BOS, ...from.tokens];
      // Without the mask earlier positions see the newest too: all are computed anew.
      const [logits, cache] = isCausal ? transformer.decode(input.slice(-1), source, from.cache)
        : transformer.decode(input, source);
      return topTokens(logits, 2 * beam).map(([token, of_token]) => {
        const log_p = from.log_p + of_token;
        const shown = {token, p: Math.exp(of_token), log_p, from: from.shown};
        return {tokens: [...from.tokens, token], log_p, cache, shown};
      });
    }).sort((a, b) => b.log_p - a.log_p).slice(0, beam > 1 ? 2 * beam : 1);
    live = [];
    candidates.forEach((candidate, rank) => {
      const {shown, log_p} = candidate;
      shown.rank = rank;
      shown.kept = shown.token !== EOS && live.length < beam;
      if (shown.kept) live.push(candidate);
      if (shown.token !== EOS) return;
      shown.score = log_p / penalty(length);
      if (shown.score > best.score) best = {...candidate, score: shown.score, finished: true};
    });
    steps.push(candidates.map(({shown}) => shown));
    // No live hypothesis can end with a better score than this.
    const reachable = live[0]?.log_p / Math.max(penalty(length + 1), penalty(limit));
    if (!live.length || best.score >= reachable) break;
  }
  if (!best.finished && live.length) best = {...live[0], score: live[0].log_p / penalty(limit)};
  return {best, steps};
}

// Yields progress; returns a translation, what was searched, and the weights of all heads.
function* translate(model, text, {off, beam, alpha}) {
  const ids = model.source.encode(text), {longest, source: {bytes}} = model, notices = [];
  if (ids.some(id => id === UNK || bytes !== null && id >= bytes && id < bytes + 256))
    notices.push('characters outside the vocabulary');
  if (ids.length >= longest) notices.push(`cut to the ${longest - 1} pieces that fit`);
  if (!ids.length) return {text: '', notices};
  const source = [...ids.slice(0, longest - 1), EOS];
  const limit = Math.min(source.length + model.extra_length, model.max_positions ?? Infinity);
  const {best, steps} = yield* search(new Transformer(model, off), source, limit, beam, alpha);
  if (!best.tokens.length) throw Error('no translation has a finite score');
  if (!best.finished) notices.push('cut at the length limit, without an end');
  if (-best.log_p > (model.nats ?? Infinity) * best.tokens.length)
    notices.push(`less probable than references of dev; is the text in ${model.language}, ` +
      'and like the text of training?');
  const names = (vocabulary, ids) => ids.map(id => vocabulary.pieces[id]);
  for (const shown of steps.flat()) shown.piece = model.target.pieces[shown.token];
  const {tokens, score, log_p, shown: end} = best;
  const target = best.finished ? tokens : [...tokens, EOS];
  const weights = {encoder: [], decoder: [], cross: []};  // [N, h, T, S] of each kind, flat
  if (Math.max(source.length, target.length) <= Math.min(MOST_SHOWN, model.longest)) {
    const forced = new Transformer(model, off, weights);
    forced.decode([BOS, ...target.slice(0, -1)], forced.encode(source));
  }
  return {text: model.target.decode(tokens), tokens, score, log_p, steps, end, notices, weights,
    source: names(model.source, source), target: names(model.target, target)};
}

// In a Web Worker: answers what is asked, unless something newer is asked meanwhile.
if (typeof WorkerGlobalScope !== 'undefined') {
  let model, newest;
  onmessage = async ({data}) => {
    if (typeof data === 'string') return model = load(data);
    const {number} = data;
    newest = number;
    try {
      const search = translate(await model, data.text, data);
      for (let since = Date.now(); number === newest;) {
        const {done, value} = search.next();
        if (done) return postMessage({number, ...value});
        if (Date.now() < since + 50) continue;
        postMessage({number, progress: value});
        await new Promise(resolve => setTimeout(resolve));  // newer messages arrive
        since = Date.now();
      }
    } catch ({message}) {
      postMessage({number, text: '', notices: [message]});
    }
  };
}
