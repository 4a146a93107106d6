'use strict';
'require view';
'require form';

/* The sections of /etc/config/recoded, which the service renders to a network file. */

/* As /usr/lib/recoded/network.sh refuses them. */
const REFUSED = /[^A-Za-z0-9._:\/+= -]/;

function character(sectionId, value) {
	return REFUSED.test(value || '') ? _('Letters, digits, spaces and ._:/+=- only') : true;
}

function uplink(sectionId, value) {
	return /^@?[A-Za-z0-9._-]*$/.test(value || '') && value !== '@' ? true :
		_('A device, or @ and the name of an interface');
}

function name(sectionId, value) {
	return !value || /^[A-Za-z0-9_][A-Za-z0-9_-]*$/.test(value) ? true :
		_('Letters, digits, - and _ only');
}

function add(section, type, option, title, description, validate) {
	const made = section.option(type, option, title, description);
	made.validate = validate || character;
	return made;
}

function mainSection(map) {
	const section = map.section(form.NamedSection, 'main', 'recoded', _('This router'));
	const enabled = section.option(form.Flag, 'enabled', _('Enabled'));
	enabled.rmempty = false;
	add(section, form.Value, 'box', _('Box'), _('Name of this router among the boxes'), name);
	add(section, form.Value, 'file', _('Network file'),
		_('Used instead of all sections below; joining by a token sets it'));
}

function boxes(map) {
	const section = map.section(form.TypedSection, 'box', _('Boxes'));
	section.addremove = true;
	add(section, form.Value, 'name', _('Name'), _('Where it is not the name of the section'), name);
	add(section, form.DynamicList, 'at', _('Address'), _('Host name or fixed address, if it has one'));
	add(section, form.DynamicList, 'uplinks', _('Uplinks'),
		_('Interfaces with @ in front, or devices'), uplink);
	add(section, form.Value, 'key', _('Public key'), _('Of this router, it is filled in'));
	add(section, form.DynamicList, 'tunnel', _('Tunnel'), _('Address with prefix length'));
	add(section, form.DynamicList, 'routes', _('Routes'), _('Subnets behind the box'));
}

function paths(map) {
	const section = map.section(form.TypedSection, 'path', _('Paths'));
	section.addremove = true;
	section.anonymous = true;
	add(section, form.DynamicList, 'via', _('Boxes'), _('From one end to the other'), name);
	const mode = section.option(form.ListValue, 'mode', _('Several uplinks'));
	mode.value('', _('Default'));
	mode.value('bond', _('Bond: their rates add up'));
	mode.value('failover', _('Failover'));
	mode.value('duplicate', _('Duplicate: a copy over each'));
	const latency = section.option(form.ListValue, 'latency', _('Latency'));
	latency.value('', _('Default'));
	latency.value('low', _('Low: more packets in advance'));
}

return view.extend({
	render: function() {
		const map = new form.Map('recoded', _('Recoded: network'),
			_('The log names the section and option of a wrong value: logread -e recoded'));
		mainSection(map);
		boxes(map);
		paths(map);
		return map.render();
	}
});
