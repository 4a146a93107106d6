//! What an active configuration changes on the host: addresses of tunnels, routes into them, and
//! the listener for metrics.

use super::{Along, Keeper, No};
use crate::config::Config;
use crate::metrics;
use recoded_runtime::{StartError, TunnelAddresses, TunnelRoutes};
use std::fmt::Display;
use std::sync::Arc;

/// Addresses of tunnels and routes into them, while the supervisor runs.
#[derive(Debug)]
pub struct TunnelNetwork {
    /// The addresses.
    pub addresses: Arc<TunnelAddresses>,
    /// The routes.
    pub routes: TunnelRoutes,
}

impl TunnelNetwork {
    /// Changes both to those of `config`. A failure restores those of `before`.
    fn change(&self, config: &Config, before: Option<&Config>) -> Result<(), StartError> {
        self.addresses.change(&config.tunnel_addresses())?;
        self.routes.change(&config.tunnel_routes()).inspect_err(|_| {
            if let Some(before) = before {
                let _ = self.addresses.change(&before.tunnel_addresses());
            }
        })
    }
}

impl Keeper {
    /// Also changes addresses and routes of tunnels while a dataplane process runs.
    #[must_use]
    pub fn networking(self, network: Arc<TunnelNetwork>) -> Keeper {
        Keeper { network: Some(network), ..self }
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
