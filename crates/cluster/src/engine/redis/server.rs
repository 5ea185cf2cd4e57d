//! Finds the primary.

use super::address::{Address, Endpoint, Topology};
use super::connection::{Connection, explain, text};
use crate::engine::Identity;
use redis::{Pipeline, Value};
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a Sentinel may take to answer, before the next one is asked.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The servers of an engine.
pub(crate) struct Server {
    pub(super) address: Address,
    /// The Sentinel that answered last.
    sentinel: Mutex<Option<Connection>>,
}

impl Server {
    /// Parses a URL. `ca_file` has certificates to trust; those of the system otherwise.
    ///
    /// # Errors
    /// What is wrong, without the password.
    pub(crate) fn parse(
        url: &str,
        ca_file: Option<&Path>,
        identity: Option<&Identity>,
    ) -> Result<Self, String> {
        Ok(Self { address: Address::parse(url, ca_file, identity)?, sentinel: Mutex::default() })
    }

    /// Where the primary is.
    ///
    /// # Errors
    /// Why it isn't known, for people. No secrets.
    pub(super) async fn primary(&self) -> Result<Endpoint, String> {
        let (sentinels, name, login) = match &self.address.topology {
            Topology::Standalone(endpoint) => return Ok(endpoint.clone()),
            Topology::Sentinel { sentinels, name, login } => (sentinels, name, login),
        };
        let mut kept = self.sentinel.lock().await;
        if let Some(sentinel) = kept.take()
            && let Ok(Ok(primary)) = timeout(SENTINEL_TIMEOUT, ask(&sentinel, name)).await
        {
            *kept = Some(sentinel);
            return Ok(primary);
        }
        let mut reasons = Vec::new();
        for endpoint in sentinels {
            let asked = timeout(SENTINEL_TIMEOUT, async {
                let opened = Connection::open(&self.address, endpoint.clone(), login, None).await;
                let sentinel = opened.map_err(|reason| match reason.contains("refused the credentials") {
                    true => format!("{reason}; see sentinel_user and sentinel_password in the URL"),
                    false => reason,
                })?;
                let primary = ask(&sentinel, name).await?;
                Ok::<_, String>((sentinel, primary))
            });
            match asked.await.unwrap_or_else(|_| Err("it doesn't answer".into())) {
                Ok((sentinel, primary)) => {
                    *kept = Some(sentinel);
                    return Ok(primary);
                }
                Err(reason) => reasons.push(format!("Sentinel {endpoint}: {reason}")),
            }
        }
        Err(reasons.join("; "))
    }

    /// Whether another server than this one is the primary now. Unknown counts as no: a server serves on while its Sentinels are away.
    pub(super) async fn is_replaced(&self, endpoint: &Endpoint) -> bool {
        match self.address.topology {
            Topology::Standalone(_) => false,
            Topology::Sentinel { .. } => self.primary().await.is_ok_and(|primary| primary != *endpoint),
        }
    }
}

async fn ask(sentinel: &Connection, name: &str) -> Result<Endpoint, String> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("SENTINEL").arg("get-master-addr-by-name").arg(name);
    let reply = sentinel.send(&pipeline).await?.pop();
    match reply {
        Some(Value::Array(address)) => {
            let mut address = address.into_iter().filter_map(text);
            let endpoint = address.next().zip(address.next().and_then(|port| port.parse().ok()));
            endpoint.map(|(host, port)| Endpoint { host, port }).ok_or_else(|| "it isn't a Sentinel".into())
        }
        Some(Value::Nil) => Err(format!("it doesn't know a primary of the name `{name}`")),
        Some(Value::ServerError(error)) if error.code() == "NOPERM" => Err(explain(error.into())),
        _ => Err("it isn't a Sentinel".into()),
    }
}
