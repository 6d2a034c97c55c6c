//! The sandbox of an untrusted server, and when its process must be restarted in another sandbox (MGP §2.3).
//!
//! A running sandbox cannot be opened. Permissions granted during the first connection restart the server at
//! once; later grants and revocations apply from its next start.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use mgp_engine::policy::risk;
use mgp_engine::servers::egress::Destination;
use mgp_engine::servers::sandbox::{SandboxProgram, sandbox_permissions};
use mgp_engine::servers::spec::{ServerInstances, ServerTransport};
use mgp_platform::sandbox::NOT_HELD;
use mgp_protocol::mgp::permission::Standard;
use mgp_protocol::mgp::servers::Sandbox;
use mgp_transports::child::ChildSpec;

use super::ServerGeneration;
use super::end::End;
use crate::link::Link;
use crate::sandbox::{EgressProxy, EgressSocket, check_seal, find_change, pin_programs};
use mgp_runtime::{EventSink, task};

/// The permissions of a sandbox; `None` without a sandbox.
pub(in crate::server) type SandboxGrants = Option<BTreeSet<Standard>>;

impl ServerGeneration {
    /// The process to start, in its sandbox if it has one, and the socket for its way out if its destinations are limited.
    pub(in crate::server) async fn confined_spec(
        &self,
    ) -> Result<(ChildSpec, Option<EgressSocket>), End> {
        self.check_program_pins().await?;
        self.check_seal().await?;
        let (spec, grants) = (self.spec_with_program().await?, self.sandbox_grants());
        self.set_sandbox_grants(grants.clone());
        let Some(granted) = grants else {
            self.handle.set_sandbox(None);
            return Ok((spec, None));
        };
        let (rules, sandboxes) = (&self.spec.sandbox, &self.connector.sandboxes);
        if let (Some(folder), true) = (&spec.cwd, self.is_in_caller_folder())
            && sandboxes.is_protected(folder)
        {
            return Err(End::Rejected(format!(
                "{} is a home, or the kernel's own files are there: no sandbox opens that, so it is not started there",
                folder.display()
            )));
        }
        if let (Some(missing), true) = (NOT_HELD, rules.required) {
            return Err(reject_partial_sandbox(missing));
        }
        let ready = sandboxes.prepare(spec, rules, &granted).await;
        let ready = ready.map_err(End::Failed)?;
        let missing = ready.report.missing.join("; ");
        self.handle.set_sandbox(Some(ready.report));
        match missing.as_str() {
            "" => {}
            missing if rules.required => return Err(reject_partial_sandbox(missing)),
            missing => self
                .log()
                .push_note(&format!("its sandbox lacks {missing}")),
        }
        Ok((ready.spec, ready.egress))
    }

    /// The proxy for a server whose destinations are limited.
    pub(in crate::server) fn egress_proxy(&self, socket: EgressSocket) -> EgressProxy {
        let (handle, log) = (self.handle.clone(), self.log().clone());
        EgressProxy {
            socket,
            rules: self.spec.sandbox.egress.clone().unwrap_or_default(),
            client: self.connector.client.clone(),
            refused: EventSink::new(move |destination: Destination| {
                log.push_note(&format!(
                    "it may not connect to {destination}: `egress` in [servers.sandbox] does not list it"
                ));
                handle.add_refused_destination(destination.to_string());
            }),
        }
    }

    /// Fails if a program that a person approved by hash has changed.
    async fn check_program_pins(&self) -> Result<(), End> {
        let before = self.spec.sandbox.pinned.clone();
        if before.is_empty() {
            return Ok(());
        }
        let spec = self.child_spec();
        let looking = task::run_blocking("confinement.hash", move || {
            find_change(&before, &pin_programs(&spec))
        });
        match looking.await.map_err(|e| End::Failed(e.to_string()))? {
            None => Ok(()),
            Some(path) => Err(End::Rejected(format!(
                "{path} has changed since it was allowed: register the server again, or start the kernel again to be asked about it"
            ))),
        }
    }

    /// Fails if its file is not the one that the operator sealed. What becomes of it between the check and the start is
    /// not seen.
    async fn check_seal(&self) -> Result<(), End> {
        let Some(seal) = self.spec.mgp.seal.clone() else {
            return Ok(());
        };
        let spec = self.child_spec();
        let checking = task::run_blocking("confinement.seal", move || check_seal(&spec, &seal));
        let checked = checking.await.map_err(|e| End::Failed(e.to_string()))?;
        checked.map_err(End::Rejected)
    }

    /// The process to start. A program that came with its registration is written again, so that only the
    /// reviewed code runs.
    async fn spec_with_program(&self) -> Result<ChildSpec, End> {
        let mut spec = self.child_spec();
        let Some(program) = self.spec.sandbox.program.clone() else {
            return Ok(spec);
        };
        let folder = self.connector.sandboxes.code_folder(&spec.id);
        let file = folder.join(&program.file).display().to_string();
        let options = program.isolation_options(&spec.env).iter();
        let options = options.map(|option| (*option).to_owned()).chain([file]);
        let at = program.at.min(spec.args.len());
        spec.args.splice(at..at, options);
        let written = task::run_blocking("confinement.write", move || {
            rewrite_program(&folder, &program)
        });
        let written = written.await.map_err(|e| End::Failed(e.to_string()))?;
        written.map_err(|e| End::Failed(format!("its program cannot be written: {e}")))?;
        Ok(spec)
    }

    /// After the first connection: true if the server must be restarted in another sandbox.
    pub(in crate::server) fn has_outgrown_sandbox(&self, link: &Link) -> bool {
        let active = link.mgp().as_active();
        let claimed = active.and_then(|active| active.peer.trust_level.as_deref());
        if risk::effective_trust(self.spec.mgp.trust_level, claimed).is_sandboxed() {
            self.handle.lower_trust();
        }
        let grants = self.sandbox_grants();
        if let ServerTransport::Http { .. } | ServerTransport::Node(_) = self.spec.transport {
            self.handle
                .set_sandbox(grants.map(|_| remote_sandbox_report()));
            return false;
        }
        let outgrown = grants != self.last_sandbox_grants();
        if outgrown {
            let why = "it is started again, in a sandbox for its trust level and permissions";
            self.log().push_note(why);
        }
        outgrown
    }

    fn is_in_caller_folder(&self) -> bool {
        let by_folder = match self.spec.instances {
            ServerInstances::PerAgent(bounds) => bounds.by_folder,
            ServerInstances::Shared => false,
        };
        by_folder && self.handle.agent().is_some()
    }

    fn sandbox_grants(&self) -> SandboxGrants {
        let low = self.spec.mgp.trust_level.is_sandboxed() || self.handle.is_trust_lowered();
        let needs = &self.spec.mgp.permissions_required;
        low.then(|| sandbox_permissions(&self.filter_granted(needs)))
    }
}

fn reject_partial_sandbox(missing: &str) -> End {
    End::Rejected(format!(
        "this machine cannot hold it to its whole sandbox, and [sandbox] says `required`: {missing}"
    ))
}

/// Creates a folder with this program and nothing else. The group may read both, whatever the kernel's umask,
/// because a server with a user of its own reads by its group.
fn rewrite_program(folder: &Path, program: &SandboxProgram) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut private = fs::DirBuilder::new();
    private.recursive(true).mode(0o700).create(folder)?;
    let mut file = fs::File::create_new(folder.join(&program.file))?;
    file.set_permissions(fs::Permissions::from_mode(0o640))?;
    file.write_all(program.text.as_bytes())?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o750))
}

/// The sandbox report for a server that is not a local process.
fn remote_sandbox_report() -> Sandbox {
    Sandbox {
        missing: vec!["all of it: the server runs elsewhere".into()],
        ..Sandbox::default()
    }
}
