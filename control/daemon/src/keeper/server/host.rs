//! What an active configuration changes on the host: addresses of tunnels, routes into them, their
//! kill switch, the programs that split their TCP connections, and the listener for metrics.

use super::{Along, Answer, Keeper, No};
use crate::config::Config;
use crate::metrics;
use crate::split::{Splits, split_tunnels};
use recoded_runtime::{KillSwitch, StartError, TunnelAddresses, TunnelRoutes};
use std::fmt::Display;
use std::sync::Arc;

/// Addresses of tunnels, routes into them, their kill switch and their split connections, while the
/// supervisor runs.
#[derive(Debug)]
pub struct TunnelNetwork {
    /// The addresses.
    pub addresses: Arc<TunnelAddresses>,
    /// The routes.
    pub routes: TunnelRoutes,
    /// Unreachable routes behind them.
    kill_switch: KillSwitch,
    /// The programs that split TCP connections.
    pub splits: Splits,
}

impl TunnelNetwork {
    /// Routes and programs of `config` for tunnels with these addresses, in a supervisor with this
    /// `--log`.
    ///
    /// # Errors
    /// Linux takes no routes.
    pub fn start(
        config: &Config,
        addresses: Arc<TunnelAddresses>,
        log: &str,
    ) -> Result<Arc<TunnelNetwork>, StartError> {
        let kill_switch = KillSwitch::start(config.kill_switch_tunnels())?;
        let routes = TunnelRoutes::start(config.tunnel_routes())?;
        let splits = Splits::following(config, log);
        Ok(Arc::new(TunnelNetwork { addresses, routes, kill_switch, splits }))
    }

    /// Changes all but addresses to those of `config` while no process runs.
    pub fn follow(&self, config: &Config) {
        self.kill_switch.change(config.kill_switch_tunnels());
        self.splits.change(split_tunnels(config));
        if let Err(error) = self.routes.change(&config.tunnel_routes()) {
            tracing::error!(%error, "routes into tunnels are not right");
        }
    }

    /// Changes all to those of `config`. A failure restores those of `before`.
    fn change(&self, config: &Config, before: Option<&Config>) -> Result<(), StartError> {
        self.addresses.change(&config.tunnel_addresses())?;
        self.routes.change(&config.tunnel_routes()).inspect_err(|_| {
            if let Some(before) = before {
                let _ = self.addresses.change(&before.tunnel_addresses());
            }
        })?;
        self.kill_switch.change(config.kill_switch_tunnels());
        self.splits.change(split_tunnels(config));
        Ok(())
    }
}

impl Keeper {
    /// Also changes addresses and routes of tunnels while a dataplane process runs.
    #[must_use]
    pub fn networking(self, network: Arc<TunnelNetwork>) -> Keeper {
        Keeper { network: Some(network), ..self }
    }

    /// State of the programs that split TCP connections.
    pub(super) fn splits(&self) -> Answer {
        Answer::Splits(self.network.as_ref().map(|it| it.splits.report()).unwrap_or_default())
    }

    /// Does what the process that continues with `config` may not do: changes addresses and routes
    /// of tunnels, and listens for metrics. A failure leaves everything unchanged.
    pub(super) fn fit_host(&self, config: &Config) -> Result<Along, No> {
        let metrics = config.daemon.metrics;
        let now = self.config();
        let is_elsewhere = now.as_ref().is_none_or(|now| now.daemon.metrics != metrics);
        let refused = |error: &dyn Display| No::Refused(format!("{error}; nothing was changed"));
        let listener = metrics.filter(|_| is_elsewhere).map(metrics::listen).transpose();
        let listener = listener.map_err(|error| refused(&error))?;
        if let Some(network) = &self.network {
            network.change(config, now.as_ref()).map_err(|error| refused(&error))?;
        }
        Ok(listener.map_or(Along::Nothing, Along::Listener))
    }
}
