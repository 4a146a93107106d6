'use strict';
'require form';
'require network';

/* Interfaces with `proto recoded`: the tunnel of the daemon. */

return network.registerProtocol('recoded', {
	getI18n: function() {
		return _('Recoded tunnel');
	},

	getIfname: function() {
		return this._ubus('l3_device') || 'rec0';
	},

	getOpkgPackage: function() {
		return 'recoded';
	},

	isFloating: function() {
		return true;
	},

	isVirtual: function() {
		return true;
	},

	getDevices: function() {
		return null;
	},

	containsDevice: function(device) {
		return network.getIfnameOf(device) == this.getIfname();
	},

	renderFormOptions: function(section) {
		const tunnel = section.taboption('general', form.Value, 'tunnel', _('Tunnel'),
			_('Name of the tunnel of the daemon'));
		tunnel.placeholder = 'rec0';
		tunnel.datatype = 'and(uciname,maxlength(15))';
		const route = section.taboption('advanced', form.Flag, 'defaultroute',
			_('Default route'), _('Send all traffic into the tunnel'));
		route.default = '0';
		const metric = section.taboption('advanced', form.Value, 'metric', _('Metric'));
		metric.placeholder = '0';
		metric.datatype = 'uinteger';
	}
});
