'use strict';
// The console follows by server-sent events. What is older than a few seconds is shown as such: nothing green may be stale.

const limit = 5000; // milliseconds without an update
const again = 5000; // until the next attempt, if the gateway does not want one now

// morph makes `was` look like `is` and changes nothing else, so that focus, selection and opened details stay.
function morph(was, is) {
  if (was.nodeType !== is.nodeType || was.nodeName !== is.nodeName || (was.id || '') !== (is.id || '')) {
    was.replaceWith(is);
    return;
  }
  if (was.nodeType !== Node.ELEMENT_NODE) {
    if (was.nodeValue !== is.nodeValue) was.nodeValue = is.nodeValue;
    return;
  }
  for (const a of [...was.attributes]) {
    if (!is.hasAttribute(a.name) && !(was.nodeName === 'DETAILS' && a.name === 'open')) was.removeAttribute(a.name);
  }
  for (const a of is.attributes) {
    if (was.nodeName === 'DETAILS' && a.name === 'open') continue; // who looks decides
    if (was.getAttribute(a.name) !== a.value) was.setAttribute(a.name, a.value);
  }
  const next = [...is.childNodes];
  while (was.childNodes.length > next.length) was.lastChild.remove();
  next.forEach((n, i) => (was.childNodes[i] ? morph(was.childNodes[i], n) : was.append(n)));
}

function follow(url) {
  const box = document.getElementById('stale');
  const note = document.getElementById('following');
  let last = Date.now();
  let why = '';
  document.body.classList.remove('unfollowed');

  const show = () => {
    const old = why !== '' || Date.now() - last > limit;
    document.documentElement.classList.toggle('stale', old);
    if (box.hidden !== !old) box.hidden = !old;
    if (old) {
      const text = 'STALE since ' + new Date(last).toISOString().slice(11, 19) + ' UTC: ' + (why || 'no update comes in');
      if (box.textContent !== text) box.textContent = text;
      note.textContent = 'Not up to date.';
    } else {
      note.textContent = 'Kept up to date.';
    }
  };

  const open = () => {
    const source = new EventSource(url);
    source.addEventListener('update', (e) => {
      const u = JSON.parse(e.data);
      for (const [id, html] of Object.entries(u.parts || {})) {
        const is = new DOMParser().parseFromString(html, 'text/html').body.firstElementChild;
        const was = document.getElementById(id);
        if (was && is) morph(was, is);
      }
      last = Date.now();
      why = '';
      show();
    });
    source.addEventListener('bye', () => {
      why = 'the gateway stops';
      show();
    });
    source.onerror = () => {
      why = 'the connection to the gateway is lost';
      show();
      if (source.readyState === EventSource.CLOSED) setTimeout(open, again);
    };
  };
  open();
  setInterval(show, 1000);
}

const field = (id) => document.getElementById(id);

// call asks the API with the token that was typed in, which is forgotten at once.
async function call(url, options) {
  const token = field('token');
  const headers = { Authorization: 'Bearer ' + token.value };
  token.value = '';
  const answer = await fetch(url, { ...options, headers, credentials: 'omit', cache: 'no-store' });
  const text = await answer.text();
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    body = { error: text || answer.statusText };
  }
  if (!answer.ok) throw new Error(body.error || answer.statusText);
  return body;
}

function line(parent, kind, text) {
  const e = document.createElement(kind);
  e.textContent = text;
  parent.append(e);
  return e;
}

function act(form) {
  const button = field('do');
  const result = field('result');
  const phrase = field('phrase');
  const named = () => field('name').value === form.dataset.name && (!phrase || phrase.value === phrase.dataset.wants);
  form.addEventListener('input', () => {
    button.disabled = !(named() && form.checkValidity());
  });
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    if (!named() || button.disabled) return;
    button.disabled = true;
    result.className = '';
    result.textContent = 'Working…';
    const body = JSON.parse(form.dataset.body);
    body.by = field('by').value;
    body.reason = field('reason').value;
    for (const f of form.querySelectorAll('.extra')) {
      if (f.required || f.value.trim()) body[f.dataset.field] = f.value.trim();
    }
    const abort = field('abort');
    if (abort && abort.value.trim()) body.abort_on = abort.value.toUpperCase().split(',').map((g) => g.trim());
    for (const f of form.querySelectorAll('.force')) {
      if (f.value.trim()) (body.force = body.force || {})[f.dataset.gate] = f.value.trim();
    }
    try {
      const out = await call(form.dataset.api, { method: 'POST', body: JSON.stringify(body) });
      result.className = 'good';
      result.textContent = '';
      line(result, 'strong', '✓ ' + (out.state || 'done'));
      for (const [k, v] of Object.entries(out)) {
        if (k !== 'undo' && k !== 'next' && k !== 'state') line(result, 'div', k + ': ' + (typeof v === 'object' ? JSON.stringify(v) : v));
      }
      if (out.undo) line(result, 'code', 'UNDO ' + out.undo);
      if (out.next) line(result, 'code', 'NEXT ' + out.next);
    } catch (err) {
      result.className = 'bad';
      result.textContent = '✗ ' + err.message;
    }
  });
}

const bytesOf = (s) => (s && s.data ? Uint8Array.from(atob(s.data), (c) => c.charCodeAt(0)) : new Uint8Array());
const width = 16;
const most = 4096; // bytes that are shown

// dump writes one side's bytes, with those marked that the other has otherwise.
function dump(parent, name, mine, other) {
  line(parent, 'h3', name + ', ' + mine.length + ' bytes');
  const pre = line(parent, 'pre', '');
  for (let at = 0; at < Math.min(mine.length, most); at += width) {
    pre.append(at.toString(16).padStart(6, '0') + '  ');
    let text = '';
    for (let i = at; i < at + width; i++) {
      if (i >= mine.length) {
        pre.append('   ');
        continue;
      }
      const hex = mine[i].toString(16).padStart(2, '0');
      if (mine[i] === other[i]) pre.append(hex);
      else line(pre, 'mark', hex);
      pre.append(' ');
      text += mine[i] > 31 && mine[i] < 127 ? String.fromCharCode(mine[i]) : '·';
    }
    pre.append(' ' + text + '\n');
  }
  if (mine.length > most) line(parent, 'p', 'The first ' + most + ' bytes are shown.');
}

function explain(form) {
  const result = field('result');
  form.addEventListener('submit', async (e) => {
    e.preventDefault();
    result.className = '';
    try {
      const q = new URLSearchParams({ scope: form.dataset.scope, seq: form.dataset.seq });
      const f = await call(form.dataset.api + '?' + q, {});
      result.textContent = '';
      if (f.redacted) throw new Error('this is not the operator\'s token');
      for (const [name, mine, other] of [['authority', f.authority, f.copy], ['copy', f.copy, f.authority]]) {
        const side = line(result, 'section', '');
        const bytes = (s) => new TextEncoder().encode((s && s.header) || '');
        if (mine && mine.header) dump(side, name + ': header', bytes(mine), bytes(other));
        dump(side, name + ': payload', bytesOf(mine), bytesOf(other));
      }
    } catch (err) {
      result.className = 'bad';
      result.textContent = '✗ ' + err.message;
    }
  });
}

if (document.body.dataset.follow) follow(document.body.dataset.follow);
if (field('act')) act(field('act'));
if (field('bytes')) explain(field('bytes'));
