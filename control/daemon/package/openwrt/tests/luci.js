'use strict';

/* Runs the LuCI pages of ../luci in a browser, by `scripts/openwrt-test`, against stand-ins for
   LuCI's documented calls. `SOURCES` has their text. The body is `ok`, or what is wrong. */

const problems = [];

function check(is, what) {
	if (!is)
		problems.push(what);
}

/* LuCI's translations and formats, as far as the pages use them. */
String.prototype.format = function(...values) {
	return this.replace(/%[sd]/g, () => String(values.shift()));
};
const _ = (text) => text;

/* As in LuCI's dom.append(): a string by itself is HTML, in an array it is text. */
function append(node, children) {
	if (Array.isArray(children)) {
		for (const child of children)
			if (child !== null && child !== undefined)
				node.appendChild(child instanceof Node ? child : document.createTextNode(child));
	} else if (children instanceof Node) {
		node.appendChild(children);
	} else if (children !== null && children !== undefined) {
		node.innerHTML = '' + children;
	}
}

function E(tag, attributes, children) {
	const node = document.createElement(tag);
	for (const [ name, value ] of Object.entries(attributes || {})) {
		if (typeof value === 'function')
			node.addEventListener(name, value);
		else
			node.setAttribute(name, value);
	}
	append(node, children);
	return node;
}

/* Options by type of section, as the forms make them. */
const options = {};
const validators = {};

function made(type, option) {
	(options[type] = options[type] || []).push(option);
	const it = { value: () => {} };
	validators[type + '.' + option] = (...given) => it.validate ? it.validate(...given) : true;
	return it;
}

class Section {
	constructor(type) { this.type = type; }
	option(kind, option) {
		check(kind, 'option ' + option + ' has no widget');
		return made(this.type, option);
	}
	taboption(tab, kind, option) { return this.option(kind, option); }
}

const form = {
	Map: class {
		constructor(config) { check(config === 'recoded', 'another config: ' + config); }
		section(kind, ...given) {
			return new Section(kind === form.NamedSection ? given[1] : given[0]);
		}
		render() { return E('div', {}, []); }
	},
	NamedSection: 'named', TypedSection: 'typed', Value: 'value', Flag: 'flag',
	DynamicList: 'list', ListValue: 'choice'
};

const calls = {};
const answers = {};
const rpc = {
	declare: ({ object, method, params }) => (...values) => {
		check(object === 'luci.recoded', 'another object: ' + object);
		calls[method] = values;
		check((params || []).length === values.length, method + ' has other arguments');
		return Promise.resolve(answers[method]);
	}
};
const polled = [];
const poll = { add: (call) => polled.push(call) };
const notes = [];
const ui = {
	addNotification: (title, children, kind) => {
		const note = E('div', { 'class': kind }, []);
		append(note, children);
		document.body.appendChild(note);
		notes.push(note);
	},
	createHandlerFn: (it, call) => call
};
const view = { extend: (members) => members };
let protocol;
const network = {
	registerProtocol: (name, members) => {
		check(name === 'recoded', 'another protocol: ' + name);
		return protocol = members;
	},
	getIfnameOf: (device) => device
};

/* As LuCI's loader runs a file: each `require` becomes an argument. */
function load(name) {
	const known = { view, form, rpc, poll, ui, network };
	const needed = [ ...SOURCES[name].matchAll(/^'require (\w+)';$/gm) ].map((it) => it[1]);
	needed.forEach((it) => check(known[it], name + ' requires ' + it));
	const run = new Function('_', 'E', ...needed, SOURCES[name]);
	return run(_, E, ...needed.map((it) => known[it]));
}

const HOSTILE = '<img src=x onerror="document.title=\'run\'"><script>document.title="run"</script>';

/* Every text of a state, replaced. */
function spoilt(value) {
	if (typeof value === 'string')
		return HOSTILE;
	if (Array.isArray(value))
		return value.map(spoilt);
	if (value && typeof value === 'object')
		return Object.fromEntries(Object.entries(value).map(([ k, v ]) => [ k, spoilt(v) ]));
	return value;
}

const STATE = {
	version: '0.1.0', protocol: 3, uptime_seconds: 7,
	links: [ { name: 'wan', interface: 'eth0', local: '192.0.2.1', state: 'up', waits: '',
		neighbours: [ { address: '192.0.2.2', name: 'hub', waits: 'no address', endpoint: '',
			version: '0.1.0', said_ago_seconds: 3.2,
			disagreements: [ { cause: 'a cause', cure: 'a cure' } ] },
		{ address: '192.0.2.3', name: 'old', other_protocol: 2, said_ago_seconds: null } ] } ],
	tunnels: [ { name: 'rec0', addresses: [ '10.99.0.2/24' ], state: 'present', mtu: 1400 } ],
	sessions: [ { with: 'wan:192.0.2.2', name: 'hub', age_seconds: null, refusal: 'stale' } ],
	flows: [ { id: 1, role: 'source', end: 'hub', state: 'up', goodput_mbit: 48.31, waits: '',
		hops: [ { loss: 0.0212 } ], residual_loss: 0 } ]
};

async function status() {
	const it = load('status');
	answers.status = STATE;
	const page = it.render(await it.load());
	document.body.appendChild(page);
	for (const shown of [ 'wan', 'eth0', 'hub', 'rec0', '10.99.0.2/24', '48.3', '2.12 %',
		'0.000 %', 'a cause. fix: a cure', 'no keys: stale', 'no address',
		'speaks protocol 2, this box 3' ])
		check(page.textContent.includes(shown), 'the page lacks ' + shown);
	check(polled.length === 1, 'the page is not polled');
	/* Names are those of other boxes. */
	answers.status = spoilt(STATE);
	await polled[0]();
	check(page.textContent.includes(HOSTILE), 'a hostile name is not shown');
	check(!page.querySelector('img, script'), 'a hostile name became HTML');
	for (const none of [ null, undefined, [], '', 7, { links: 3 }, { error: { message: HOSTILE } },
		{ links: [ {}, { neighbours: 1 } ], flows: 'x', sessions: [ {} ] } ]) {
		answers.status = none;
		await polled[0]();
		check(page.querySelector('#recoded-state').children.length > 0, 'an empty page');
		check(!page.querySelector('img, script'), 'an error became HTML');
	}
	answers.status = { links: [], flows: Array.from({ length: 5000 }, (_, id) => ({ id })) };
	await polled[0]();
	check(page.querySelectorAll('tr').length < 300, 'a page without bound');
	check(page.textContent.includes('more: recodectl show -v'), 'rows are left out silently');
	await joining(page);
}

async function joining(page) {
	const input = page.querySelector('#recoded-token');
	check(input.type === 'password', 'a token is shown');
	const button = page.querySelector('#recoded-join');
	const press = async (token, answer) => {
		input.value = token;
		answers.join = answer;
		button.click();
		await new Promise((done) => setTimeout(done));
		return notes[notes.length - 1];
	};
	let note = await press(' recoded1_x\n', { name: HOSTILE, hub: 'hub' });
	check(calls.join[0] === 'recoded1_x', 'another token: ' + calls.join[0]);
	check(note.className === 'info' && input.value === '', 'it has not joined');
	check(!note.querySelector('img, script'), 'a name became HTML');
	note = await press('recoded1_x', { error: { message: HOSTILE } });
	check(note.className === 'error' && input.value !== '', 'a refusal is no error');
	check(note.textContent.includes(HOSTILE), 'a refusal is not shown');
	check(!note.querySelector('img, script'), 'a refusal became HTML');
	note = await press('recoded1_x', undefined);
	check(note.className === 'error', 'no answer is no error');
}

/* Options of the renderer and of the protocol handler, by type of section. */
function known() {
	const types = {};
	const listed = SOURCES.renderer.match(/recoded_known\(\) \{[^]*?\n\}/)[0];
	for (const [ , type, option ] of listed.matchAll(/(recoded|box|path):([a-z]+)/g))
		(types[type] = types[type] || []).push(option);
	const read = SOURCES.handler.match(/json_get_vars (.*)/)[1];
	types.interface = read.split(' ');
	return types;
}

function forms() {
	load('network').render();
	load('protocol');
	const section = new Section('interface');
	protocol.renderFormOptions(section);
	check(protocol.getIfname.call({ _ubus: () => null }) === 'rec0', 'another device');
	const sorted = (types) => JSON.stringify(Object.entries(types).sort()
		.map(([ type, all ]) => [ type, all.sort() ]));
	check(sorted(options) === sorted(known()),
		'forms have ' + sorted(options) + ', the scripts ' + sorted(known()));
	const refuses = (option, value) => validators[option]('x', value) !== true;
	const pattern = SOURCES.renderer.match(/\*\[!(.*?)\]\*\)\n\t\trecoded_fault/)[1];
	for (let code = 1; code < 128; code++) {
		const letter = String.fromCharCode(code);
		const isTaken = /[A-Za-z0-9]/.test(letter) || '._:/+=\\ -'.includes(letter) && letter !== '\\';
		check(refuses('box.key', 'a' + letter) === !isTaken, 'key with character ' + code);
	}
	check(pattern === 'A-Za-z0-9._:/+=\\ -', 'the renderer takes ' + pattern);
	for (const wrong of [ '@', '@../x', 'a b' ])
		check(refuses('box.uplinks', wrong), 'uplink ' + wrong);
	check(!refuses('box.uplinks', '@wan') && !refuses('box.uplinks', 'eth0'), 'an uplink');
	check(refuses('box.name', '-x') && refuses('path.via', 'a"b'), 'a name');
	for (const option of Object.keys(validators))
		check(!refuses(option, ''), 'no value of ' + option);
}

window.onerror = (message) => problems.push(message);
forms();
status().catch((error) => problems.push(error.stack)).then(() => {
	check(document.title === 'Recoded', 'a script ran');
	document.body.textContent = problems.length ? problems.join('\n') : 'ok';
});
