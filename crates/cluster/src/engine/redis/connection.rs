//! One connection to a server, of whatever role.

use super::address::Address;
use super::receiver::{self, Commands};
use super::values::explain;
use crate::engine::common::{self, Endpoint, Login};
use redis::aio::AsyncPushSender;
use redis::{Pipeline, Value};
use std::net::TcpStream;
use std::sync::Arc;
use stentor_ports::Ledger;
use tokio::task::JoinHandle;

/// A connection. It ends when it is dropped.
pub(super) struct Connection {
    pub(super) endpoint: Endpoint,
    pub(super) commands: Commands,
    /// A second handle to the socket of a connection that publishes or makes requests, unless it is encrypted.
    pub(super) socket: Option<TcpStream>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Connects to one of the servers of an address, logs in and selects the database. The ledger is charged for replies.
    ///
    /// # Errors
    /// The reason, for people. No secrets.
    pub(super) async fn open(
        (address, ledger): (&Address, &Arc<Ledger>),
        endpoint: Endpoint,
        (login, database): (&Login, u32),
        pushes: Option<Arc<dyn AsyncPushSender>>,
    ) -> Result<Self, String> {
        let stream = common::connect(&endpoint, address.tls.as_ref()).await?;
        let socket = if pushes.is_none() { stream.socket() } else { None };
        let (commands, driver) = receiver::start(stream, pushes, ledger);
        let connection = Self { endpoint, commands, socket, driver };
        let mut pipeline = Pipeline::new();
        let hello = pipeline.cmd("HELLO").arg(3);
        if let Some(password) = login.password.as_ref().filter(|password| !password.is_empty()) {
            let user = if login.user.is_empty() { "default" } else { &login.user };
            hello.arg("AUTH").arg(user).arg(password);
        }
        if database != 0 {
            pipeline.cmd("SELECT").arg(database);
        }
        for reply in connection.send(&pipeline).await? {
            if let Value::ServerError(error) = reply {
                let is_old =
                    error.code() == "NOPROTO" || error.details().is_some_and(|it| it.contains("HELLO'"));
                return Err(if is_old {
                    "the server is too old; Stentor needs Redis 6.2 or newer".into()
                } else {
                    explain(error)
                });
            }
        }
        Ok(connection)
    }

    /// See [`Commands::send`].
    pub(super) async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        Ok(self.commands.send(pipeline).await?.values)
    }

    /// Waits until the connection is lost. Returns the reason.
    pub(super) async fn closed(&mut self) -> String {
        let _ = (&mut self.driver).await;
        self.commands.reason()
    }
}
