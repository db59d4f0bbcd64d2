// Shows a translation, its beam, and where the heads look; or stored sentences alone.
const at = id => document.getElementById(id);
const shown = JSON.parse(at('shown').textContent), {N, H} = shown;
const KINDS = {encoder: 'encoder self', decoder: 'decoder self', cross: 'encoder-decoder'};
const ROW = 28, FAINTEST = 0.02, COLUMN = 150, LINE = 32;  // pixels, and a weight
let sentence, part;  // of all kinds and the chosen one: rows, columns, weights
let word = shown.word;  // the row whose lines are shown, or null

function add(parent, tag, text, properties, attributes = {}) {
  const element = Object.assign(document.createElement(tag), {textContent: text}, properties);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return parent.appendChild(element);
}

// Arrow keys move between words, and between candidates along the lines of the beam.
document.onkeydown = event => {
  const {previousElementSibling: ArrowUp, nextElementSibling: ArrowDown, near} = event.target;
  const next = {ArrowUp, ArrowDown, ...near}[event.key];
  if (event.key === 'Escape' && part) draw(word = null);
  if (!next || !event.target.closest('#rows, #tree')) return;
  event.preventDefault();
  next.focus();
};

// Figures 3 to 5: the attention of a layer's heads, and small maps of all
const chosen = name => [...at('look').querySelectorAll(`[name=${name}]:checked`)].map(x => x.value);
const shade = head => `hsl(${head * 360 / H} 75% var(--lightness))`;
const weight = (layer, head, row, column) =>
  part.weights[((layer * H + head) * part.rows.length + row) * part.columns.length + column];

// Adds the words and small maps of a sentence and a kind of attention.
function showPart() {
  const {rows, columns} = part = sentence[chosen('kind')[0]];
  if (!(word < rows.length)) word = null;
  for (const id of ['rows', 'columns', 'maps']) at(id).replaceChildren();
  rows.forEach((text, row) => {
    const element = add(at('rows'), 'button', text, {type: 'button', dir: 'auto', title: text});
    element.onclick = () => draw(word = word === row ? null : row);
    element.onfocus = element.onmouseenter = () => draw(row);
    element.onblur = element.onmouseleave = () => draw(word);
  });
  for (const text of columns) {
    const cell = add(at('columns'), 'div', '', {title: text}, {role: 'listitem'});
    add(cell, 'span', text, {dir: 'auto'});
  }
  for (let n = 0; n < N * H; n++) {
    const layer = Math.floor(n / H), head = n % H, label = `Layer ${layer + 1}, head ${head + 1}`;
    const map = add(at('maps'), 'button', '', {type: 'button'}, {'aria-label': label});
    map.onclick = () => {
      at(`layer ${layer}`).checked = true;
      for (let h = 0; h < H; h++) at(`head ${h}`).checked = h === head;
      draw(word);
    };
    const image = new ImageData(columns.length, rows.length);
    rows.forEach((_, row) => columns.forEach((_, column) =>
      image.data[4 * (row * columns.length + column) + 3] = 255 * weight(layer, head, row, column)));
    const canvas = add(map, 'canvas', '', {width: columns.length, height: rows.length});
    canvas.getContext('2d').putImageData(image, 0, 0);
  }
  draw(word);
}

// Draws the lines of a row, or of all (null). At a row it also draws a square for each
// head at each column, and says in words what is seen.
function draw(from) {
  const {rows, columns} = part;
  const layer = Number(chosen('layer')[0]), heads = chosen('head').map(Number);
  const height = ROW * Math.max(rows.length, columns.length), lines = [];
  at('columns').querySelectorAll('i').forEach(square => square.remove());
  const said = heads.map(head => {
    const weights = row => columns.map((_, column) => weight(layer, head, row, column));
    rows.forEach((_, row) => weights(row).forEach((w, column) => {
      if (row !== (from ?? row) || w < FAINTEST) return;
      lines.push(`<line x2="100" y1="${(row + .5) * ROW}" y2="${(column + .5) * ROW}"
        style="stroke: ${shade(head)}; stroke-opacity: ${w}"/>`);
    }));
    if (from === null) return '';
    weights(from).forEach((w, column) => add(at('columns').children[column], 'i', '',
      {style: `background: ${shade(head)}; opacity: ${w}`}));
    const most = Math.max(...weights(from)), text = columns[weights(from).indexOf(most)];
    return `head ${head + 1}: \u2068${text}\u2069 ${most.toFixed(2)}`;
  });
  at('lines').setAttribute('viewBox', `0 0 100 ${height}`);
  at('lines').style.height = `${height}px`;
  at('lines').innerHTML = lines.join('');  // numbers alone
  at('told').textContent = from === null
    ? 'Choose a word on the left (arrow keys move, Escape shows all).'
    : `\u2068${rows[from]}\u2069 \u2013 ${said.join(', ')}`;
  const press = (id, isPressed) => [...at(id).children].forEach((element, n) =>
    element.setAttribute('aria-pressed', isPressed(n)));
  press('rows', row => row === word);
  press('maps', n => Math.floor(n / H) === layer && heads.includes(n % H));
}

// 6.1 Beam search: each step's candidates; `end` is the translation's last
function showTree({steps = [], end}) {
  const path = new Set(), width = COLUMN * steps.length, lines = [], tree = at('tree');
  for (let candidate = end; candidate; candidate = candidate.from) path.add(candidate);
  const height = LINE * Math.max(0, ...steps.map(step => step.length));
  tree.replaceChildren();
  tree.style.cssText = `width: ${width}px; height: ${height}px`;
  steps.forEach((step, n) => step.forEach(candidate => {
    const {piece, p, log_p, score, kept, from, rank} = candidate;
    const kind = path.has(candidate) ? 'best' : kept ? 'kept' : score ? 'ended' : 'dropped';
    candidate.words = (from?.words ?? '') + piece;
    const text = `\u2068${candidate.words.replaceAll('▁', ' ')}\u2069: P of the piece ` +
      `${p.toFixed(3)}, log P ${log_p.toFixed(2)}${score ? `, score ${score.toFixed(3)}` : ''}, ${kind}`;
    const element = candidate.element = add(tree, 'button', '', {type: 'button', className: kind,
      style: `left: ${COLUMN * n}px; top: ${LINE * rank + 3}px; width: ${COLUMN - 24}px`,
      tabIndex: n + rank ? -1 : 0, near: {ArrowLeft: from?.element},
      onfocus: () => at('candidate').textContent = text, onmouseenter: () => element.onfocus()},
    {role: 'treeitem', 'aria-level': n + 1, 'aria-label': text});
    add(element, 'span', piece.replace('▁', ' '), {dir: 'auto'});
    add(element, 'span', `${(100 * p).toFixed(p < .1 ? 1 : 0)} %`);
    if (!from) return;
    from.element.near.ArrowRight ??= element;
    lines.push(`<line class="${kind}" x1="${COLUMN * n - 24}" y1="${LINE * (from.rank + .5)}"
      x2="${COLUMN * n}" y2="${LINE * (rank + .5)}"/>`);
  }));
  tree.insertAdjacentHTML('beforeend',
    `<svg aria-hidden="true" width="${width}" height="${height}">${lines.join('')}</svg>`);
}

// The sentence and what is switched off, which the link has too
let worker, asked = {number: 0}, trained = {};  // trained: the last translation as trained

function ask() {
  const fields = new URLSearchParams(new FormData(at('switches'))), text = at('text').value;
  const number = id => Number(at(id).validity.valid && at(id).value || shown[id]);
  const off = fields.getAll('off').filter(Boolean), [beam, alpha] = ['beam', 'alpha'].map(number);
  const isTrained = !off.length && beam === shown.beam && alpha === shown.alpha;
  fields.set('text', text);
  at('link').href = `#${isTrained ? new URLSearchParams({text}) : fields}`;
  history.replaceState(null, '', at('link').href);
  asked = {number: asked.number + 1, text, off, beam, alpha, isTrained};
  worker.postMessage(asked);
}

function answer({data}) {
  if (data.number !== asked.number) return;
  at('progress').hidden = !data.progress;
  at('progress').value = data.progress ?? 0;
  if (data.progress) return;
  const {text, notices, weights, source = [], target = [], score, log_p, tokens} = data;
  if (asked.isTrained) trained = {of: asked.text, text};
  at('translation').textContent = text;
  const isOther = !asked.isTrained && trained.of === asked.text;
  at('trained').textContent = isOther ? `As trained: ${trained.text}` : '';
  for (const [id, pieces] of Object.entries({source, target})) {
    at(id).replaceChildren();
    for (const piece of pieces) add(at(id), 'span', piece);
  }
  at('score').textContent = tokens ? `Score ${score.toFixed(4)} = log P / ((5 + |Y|) / 6)^\u03b1 = ` +
    `${log_p.toFixed(4)} / ((5 + ${tokens.length}) / 6)^${asked.alpha}` : '';
  at('notices').textContent = notices.join('; ');
  showTree(data);
  at('attention').hidden = !weights?.encoder.length;
  if (at('attention').hidden) return;
  sentence = {
    encoder: {rows: source, columns: source, weights: weights.encoder},
    decoder: {rows: target, columns: ['<s>', ...target.slice(0, -1)], weights: weights.decoder},
    cross: {rows: target, columns: source, weights: weights.cross},
  };
  showPart();
}

function startModel() {
  const option = (text, value) => add(at('off'), 'option', text, {value});
  for (const kind in KINDS)
    for (let n = 0; n < N; n++) {
      if (kind !== 'cross') option(`${kind} layer ${n + 1}`, `${kind}.${n}`);
      for (let h = 0; h < H; h++) option(`${KINDS[kind]} head ${n + 1}.${h + 1}`, `${kind}.${n}.${h}`);
    }
  const link = new URLSearchParams(location.hash.slice(1));
  for (const value of link.getAll('off').filter(Boolean)) {
    const control = at('switches').querySelector(`[value="${CSS.escape(value)}"]`);
    if (control) control.checked = control.selected = true;
  }
  [at('text').lang, at('translation').lang] = shown.languages.map(code => code.replace('_', '-'));
  at('text').value = link.get('text') ?? shown.text;
  at('text').oninput = () => ask(word = null);
  for (const id of ['beam', 'alpha']) {
    at(id).defaultValue = shown[id];
    at(id).value = link.get(id) ?? shown[id];
  }
  worker = new Worker(URL.createObjectURL(new Blob([at('transformer').textContent])));
  worker.onmessage = answer;
  worker.onerror = () => at('unable').hidden = false;
  worker.postMessage(at('model').textContent);
  onhashchange = () => location.reload();  // another link of this page
  at('switches').oninput = ask;
  at('switches').onreset = () => setTimeout(ask);  // after the fields are reset
  ask();
}

function startStored() {
  const open = n => {
    sentence = {};
    for (const [kind, {weights, ...words}] of Object.entries(shown.sentences[n]))
      sentence[kind] = {...words, weights: Float32Array.from(atob(weights), c => c.charCodeAt(0) / 255)};
    showPart();
  };
  shown.sentences.forEach(({encoder: {rows}}, n) =>
    add(at('sentences'), 'option', `${n + 1}. ${rows.slice(0, -1).join(' ')}`, {value: n}));
  at('sentences').onchange = () => open(at('sentences').value, word = null);
  open(0);
}

function choices(name, type, values, isChecked) {
  values.forEach(([value, text]) => {
    const label = add(at(`${name}s`), 'label', '');
    add(label, 'input', '', {type, name, value, id: `${name} ${value}`, checked: isChecked(value)});
    add(label, 'span', text).style.setProperty('--shade', shade(value));
  });
}

const isLive = !shown.sentences.length, numbers = n => Array.from({length: n}, (_, i) => [i, i + 1]);
choices('kind', 'radio', Object.entries(KINDS), kind => kind === shown.kind);
choices('layer', 'radio', numbers(N), layer => layer === shown.layer);
choices('head', 'checkbox', numbers(H), head => shown.heads.includes(head));
at('look').onchange = event => event.target.name === 'kind' ? showPart() : draw(word);
for (const id of ['title', 'about', 'rights']) at(id).textContent = shown[id] ?? '';
document.title = shown.title;
at('unable').hidden = true;
at('live').hidden = !isLive;
at('stored').hidden = isLive;
if (isLive) startModel();
else startStored();
