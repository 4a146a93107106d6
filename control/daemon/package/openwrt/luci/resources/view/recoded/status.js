'use strict';
'require view';
'require poll';
'require rpc';
'require ui';

/* State of the daemon, and joining a network by a token. Texts come of other boxes: they are
   always in an array, which LuCI makes text nodes of; a string by itself would be HTML. */

const SECONDS = 5;
const ROWS_MAX = 256;
const SILENT_SECONDS = 30;

const callStatus = rpc.declare({ object: 'luci.recoded', method: 'status' });
const callJoin = rpc.declare({ object: 'luci.recoded', method: 'join', params: [ 'token' ] });

function text(value) {
	return value === null || value === undefined || value === '' ? '-' : String(value);
}

function number(value, digits, unit) {
	return Number.isFinite(value) ? value.toFixed(digits) + unit : '-';
}

function list(value) {
	return Array.isArray(value) ? value : [];
}

function table(title, head, rows) {
	const cells = (tag, kind, values) =>
		values.map((value) => E(tag, { 'class': kind }, [ text(value) ]));
	const body = rows.slice(0, ROWS_MAX).map((row) =>
		E('tr', { 'class': 'tr' }, cells('td', 'td left', row)));
	if (rows.length > ROWS_MAX)
		body.push(E('tr', { 'class': 'tr' }, [ E('td', { 'class': 'td' }, [
			_('%d more: recodectl show -v').format(rows.length - ROWS_MAX) ]) ]));
	return E('div', { 'class': 'cbi-section' }, [
		E('h3', {}, [ title ]),
		E('table', { 'class': 'table' }, [
			E('tr', { 'class': 'tr table-titles' }, cells('th', 'th', head))
		].concat(body))
	]);
}

function faultsOf(state) {
	const faults = [];
	for (const link of list(state.links)) {
		if (link.waits)
			faults.push([ link.name, link.waits ]);
		for (const it of list(link.neighbours)) {
			if (it.waits)
				faults.push([ it.name || it.address, it.waits ]);
			/* Anyone can forge such packets of a neighbour that is up. */
			const isUp = Number.isFinite(it.said_ago_seconds) &&
				it.said_ago_seconds <= SILENT_SECONDS;
			if (it.other_protocol && !isUp)
				faults.push([ it.name || it.address,
					_('speaks protocol %d, this box %d: upgrade the older one')
						.format(it.other_protocol, state.protocol) ]);
			for (const one of list(it.disagreements))
				faults.push([ it.name || it.address, text(one.cause) + '. fix: ' + text(one.cure) ]);
		}
	}
	for (const session of list(state.sessions))
		if (session.age_seconds === null)
			faults.push([ session.name || session.with,
				_('no keys') + (session.refusal ? ': ' + session.refusal : '') ]);
	for (const flow of list(state.flows))
		if (flow.waits)
			faults.push([ 'flow ' + flow.id, flow.waits ]);
	return faults;
}

function neighbourRows(link) {
	return list(link.neighbours).map((it) => [
		it.name || it.address, link.name, it.endpoint || it.address, it.version,
		number(it.said_ago_seconds, 0, ' s')
	]);
}

function flowRow(flow) {
	const losses = list(flow.hops).map((hop) => hop.loss);
	return [
		flow.id, flow.role, flow.end, flow.state, number(flow.goodput_mbit, 1, ''),
		losses.length ? number(100 * Math.max(...losses), 2, ' %') : '-',
		Number.isFinite(flow.residual_loss) ? number(100 * flow.residual_loss, 3, ' %') : '-'
	];
}

/* The whole state, or why there is none. */
function page(state) {
	if (!state || state.error || !Array.isArray(state.links)) {
		const why = state && state.error && state.error.message;
		return [ E('div', { 'class': 'alert-message warning' }, [
			text(why || _('The service does not answer. Is it enabled?')) ]) ];
	}
	const faults = faultsOf(state);
	const parts = [
		E('p', {}, [ 'recoded %s, %s %d s'.format(text(state.version), _('up for'),
			state.uptime_seconds) ]),
		table(_('Links'), [ _('Link'), _('Interface'), _('Address'), _('State') ],
			state.links.map((it) => [ it.name, it.interface, it.local, it.state ])),
		table(_('Tunnels'), [ _('Tunnel'), _('Addresses'), _('State'), 'MTU' ],
			list(state.tunnels).map((it) =>
				[ it.name, list(it.addresses).join(', '), it.state, it.mtu ])),
		table(_('Neighbours'), [ _('Box'), _('Link'), _('Address'), _('Version'), _('Heard') ],
			state.links.flatMap(neighbourRows)),
		table(_('Flows'), [ _('Flow'), _('Role'), _('Other end'), _('State'), 'Mbit/s',
			_('Loss before repair'), _('Residual loss') ], list(state.flows).map(flowRow))
	];
	if (faults.length)
		parts.splice(1, 0, table(_('Faults'), [ _('Where'), _('What') ], faults));
	return parts;
}

function join(input) {
	const token = input.value.trim();
	return callJoin(token).then((answer) => {
		const why = answer && answer.error && answer.error.message;
		if (why || !answer)
			return ui.addNotification(null, E('p', {}, [ text(why) ]), 'error');
		input.value = '';
		ui.addNotification(null, E('p', {}, [ _('This router is now %s, in the network of %s')
			.format(text(answer.name), text(answer.hub)) ]), 'info');
	});
}

return view.extend({
	load: function() {
		return callStatus();
	},

	render: function(state) {
		const shown = E('div', { 'id': 'recoded-state' }, page(state));
		const input = E('input', { 'id': 'recoded-token', 'class': 'cbi-input-text',
			'type': 'password', 'autocomplete': 'off', 'placeholder': 'recoded1_...' });
		poll.add(() => callStatus().then((now) => {
			while (shown.firstChild)
				shown.removeChild(shown.firstChild);
			for (const part of page(now))
				shown.appendChild(part);
		}), SECONDS);
		return E('div', {}, [
			E('h2', {}, [ 'Recoded' ]),
			shown,
			E('div', { 'class': 'cbi-section' }, [
				E('h3', {}, [ _('Join a network') ]),
				E('p', {}, [ _('Run "recodectl invite NAME" on the hub, and give the token here. The sections of the page Network are then not used.') ]),
				input,
				E('button', { 'id': 'recoded-join', 'class': 'btn cbi-button-action',
					'click': ui.createHandlerFn(this, () => join(input)) }, [ _('Join') ])
			])
		]);
	},

	handleSave: null,
	handleSaveApply: null,
	handleReset: null
});
