//! `mgp demo`: a kernel with one built-in server, to try things out.

mod banner;
mod prompts;
mod resources;
mod server;
mod session;
mod tools;

use std::collections::BTreeMap;
use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mgp_engine::policy::permissions::PermissionRules;
use mgp_engine::policy::pins::PinRules;
use mgp_engine::policy::trust::TrustLevel;
use mgp_engine::servers::spec::{
    CallbackAttribution, MgpConfig, ReplicaMode, RestartConfig, ServerInstances, ServerLimits,
    ServerSpec, ServerTransport, StartMode, default_client_extensions,
};
use mgp_protocol::ids::ServerId;
use tempfile::TempDir;

pub(crate) use banner::render_banner;
use server::serve;

use crate::config::{KernelConfig, LoadedConfig};
use crate::paths::{SOCKET_NAME, temporary_folder};

/// The id of the built-in server.
const SERVER: &str = "demo";

/// A prepared demo. Its folder is removed when this is dropped.
pub(crate) struct Demo {
    /// The configuration, without a file.
    pub(crate) loaded: LoadedConfig,
    /// Holds the socket and the data.
    pub(crate) folder: TempDir,
}

impl Demo {
    #[must_use]
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET_NAME)
    }

    #[must_use]
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

/// Prepares a demo whose server is `program __demo-server` in the current folder.
///
/// # Errors
/// If the temporary folder cannot be created, or there is no current folder.
pub(crate) fn prepare(program: &Path) -> io::Result<Demo> {
    let folder = temporary_folder("mgp-demo-")?;
    let mut kernel = KernelConfig::default();
    kernel.http.listen = available_port(kernel.http.listen);
    let server = ServerSpec {
        id: ServerId::new(SERVER),
        transport: ServerTransport::Stdio {
            command: program.to_string_lossy().into_owned(),
            args: vec!["__demo-server".into()],
            env: BTreeMap::new(),
            inherit_env: Vec::new(),
            cwd: Some(env::current_dir()?),
        },
        start: StartMode::Kernel,
        start_after: Vec::new(),
        rolling: false,
        replica: ReplicaMode::Standalone,
        restart: RestartConfig::default(),
        resources: mgp_engine::servers::resources::ResourceLimits::default(),
        limits: ServerLimits::default(),
        default_policy: None,
        callback_attribution: CallbackAttribution::default(),
        instances: ServerInstances::default(),
        mgp: MgpConfig {
            trust_level: TrustLevel::Trusted,
            ..MgpConfig::default()
        },
        mcpl: true,
        client_extensions: default_client_extensions(),
        tools: Arc::default(),
        permissions: PermissionRules::default(),
        pin: PinRules::default(),
        sandbox: mgp_engine::servers::sandbox::SandboxConfig::default(),
        login: mgp_engine::servers::login::LoginConfig::disabled(),
        pass_headers: Vec::new(),
        agent_values: BTreeMap::new(),
    };
    let loaded = LoadedConfig::without_files(kernel, vec![server]);
    Ok(Demo { loaded, folder })
}

/// The address, or any free port if it is taken.
fn available_port(address: SocketAddr) -> SocketAddr {
    match TcpListener::bind(address) {
        Ok(_) => address,
        Err(_) => SocketAddr::new(address.ip(), 0),
    }
}

/// Runs the built-in server on stdin and stdout until stdin ends.
///
/// # Errors
/// Those of stdin and stdout, or if there is no such folder.
pub(crate) fn run(root: &Path) -> io::Result<()> {
    let root = root.canonicalize()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = runtime.block_on(serve(tokio::io::stdin(), tokio::io::stdout(), root));
    // Stdin is read on its own thread, which cannot be joined.
    runtime.shutdown_background();
    served
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::SOCKET_PATH_MAX;

    #[test]
    fn a_demo_uses_another_port_if_the_usual_one_is_taken() {
        let taken = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert_eq!(available_port(taken), taken);
        let held = TcpListener::bind(taken).unwrap();
        assert_eq!(available_port(taken).port(), 0);
        drop(held);
    }

    #[test]
    fn a_demo_is_one_server_in_a_temporary_folder() {
        let demo = prepare(Path::new("/usr/bin/mgp")).unwrap();
        let folder = demo.folder.path().to_owned();
        assert!(demo.loaded.is_usable() && demo.loaded.servers.len() == 1);
        assert!(demo.socket().as_os_str().len() <= SOCKET_PATH_MAX);
        drop(demo);
        assert!(!folder.exists());
    }
}
