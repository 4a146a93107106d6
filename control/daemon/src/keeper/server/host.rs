//! What an active configuration changes on the host: addresses of tunnels, routes into them, and
//! the listener for metrics.

use super::{Along, Keeper, No};
use crate::config::Config;
use crate::metrics;
use recoded_runtime::{TunnelAddresses, TunnelRoutes};
use std::fmt::Display;
use std::sync::Arc;

impl Keeper {
    /// Also changes addresses of tunnels while a dataplane process runs.
    #[must_use]
    pub fn addressing(self, addresses: Arc<TunnelAddresses>) -> Keeper {
        Keeper { addresses: Some(addresses), ..self }
    }

    /// Also changes routes into tunnels.
    #[must_use]
    pub fn routing(self, routes: Arc<TunnelRoutes>) -> Keeper {
        Keeper { routes: Some(routes), ..self }
    }

    /// Does what the process that continues with `config` may not do: changes addresses and routes
    /// of tunnels, and listens for metrics. A failure leaves everything unchanged.
    pub(super) fn fit_host(&self, config: &Config) -> Result<Along, No> {
        let metrics = config.daemon.metrics;
        let is_elsewhere = || self.config().is_none_or(|now| now.daemon.metrics != metrics);
        let refused = |error: &dyn Display| No::Refused(format!("{error}; nothing was changed"));
        let listener = metrics.filter(|_| is_elsewhere()).map(metrics::listen).transpose();
        let listener = listener.map_err(|error| refused(&error))?;
        if let Some(addresses) = &self.addresses {
            addresses.change(&config.tunnel_addresses()).map_err(|error| refused(&error))?;
        }
        if let Some(routes) = &self.routes
            && let Err(error) = routes.change(&config.tunnel_routes())
        {
            if let (Some(addresses), Some(before)) = (&self.addresses, self.config()) {
                let _ = addresses.change(&before.tunnel_addresses());
            }
            return Err(refused(&error));
        }
        Ok(listener.map_or(Along::Nothing, Along::Listener))
    }
}
