//! The exchange of grants and manifests with servers of MCPL 0.5 (0.5 §5.3, §6.7, §17).

use std::sync::Arc;
use std::time::Duration;

use mgp_mcpl_engine::grants::ManifestImpact;
use mgp_mcpl_engine::manifest::{self, DigestError};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::feature_sets::Update;
use mgp_protocol::mcpl::grants::GrantReceipt;
use mgp_protocol::mcpl::{Manifest, ManifestChanged, McplVersion, ServerCapabilities};
use mgp_runtime::task;
use mgp_servers::link::Link;
use serde_json::json;

use super::{HostEvent, McplHost};
use crate::audit::{self, McplRecord};
use crate::feature_sets::UnsentGrant;

/// How long a server may take to answer a grant, or to send its manifest.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl McplHost {
    /// Sends a server the grants that changed. Until its receipt nothing that was added is in force.
    pub(super) fn send_grants(self: &Arc<Self>, server: &ServerId) {
        for UnsentGrant { link, update } in self.sets.take_unsent_grants(server) {
            let (host, server) = (self.clone(), server.clone());
            let params = serde_json::to_string(&update).expect("a grant is always JSON");
            task::spawn_detached("mcpl.grant", async move {
                let answer = Box::pin(link.request_mcpl(Update::METHOD, &params, ANSWER_TIMEOUT));
                let receipt = match answer.await {
                    Ok(result) => GrantReceipt::parse(&String::from_utf8_lossy(&result)),
                    Err(refusal) => Err(refusal.to_string()),
                };
                note_receipt(&link, receipt.as_ref());
                let receipt = receipt.as_ref().ok();
                if host.sets.finish_grant(&server, link.number, receipt) {
                    host.dispatch(&HostEvent::SetsChanged(server));
                }
            });
        }
    }

    /// `mcpl/manifestChanged`: a reason to fetch the manifest, and no more.
    pub(super) fn fetch_manifest(self: &Arc<Self>, server: &ServerId, link: u64) {
        let Some(link) = self.sets.begin_fetch(server, link) else {
            return;
        };
        let (host, server) = (self.clone(), server.clone());
        task::spawn_detached("mcpl.manifest", async move {
            let answer = Box::pin(link.request_mcpl(Manifest::METHOD, "{}", ANSWER_TIMEOUT));
            let manifest = match answer.await {
                Ok(result) => read_manifest(&link, &String::from_utf8_lossy(&result)),
                Err(refusal) => Err(refusal.to_string()),
            };
            if let Err(why) = &manifest {
                let note = format!("mcpl/manifest: {why}; the manifest before stays in force");
                link.log.push_note(&note);
            }
            let manifest = manifest.as_ref().ok();
            let (impacts, again) = host.sets.finish_fetch(&server, link.number, manifest);
            host.record_impacts(&server, &impacts);
            host.dispatch(&HostEvent::SetsChanged(server.clone()));
            if again {
                host.fetch_manifest(&server, link.number);
            }
        });
    }

    /// One record for each changed manifest (0.5 §17.6).
    fn record_impacts(&self, server: &ServerId, impacts: &[ManifestImpact]) {
        if impacts.is_empty() {
            return;
        }
        let record = McplRecord {
            details: json!({"impacts": impacts}),
            ..McplRecord::from_server(server, ManifestChanged::METHOD)
        };
        audit::record(&self.audit, &record);
    }
}

fn note_receipt(link: &Link, receipt: Result<&GrantReceipt, &String>) {
    let note = match receipt {
        Ok(GrantReceipt::Accepted { is_degraded: false }) => return,
        Ok(GrantReceipt::Accepted { is_degraded: true }) => {
            "it accepted its MCPL grant, and some of its features are unavailable".to_owned()
        }
        Ok(GrantReceipt::Refused { reason, .. }) => {
            format!("it refused its MCPL grant, and is spoken to in MCP alone: {reason}")
        }
        Err(why) => format!("it did not accept its MCPL grant: {why}"),
    };
    link.log.push_note(&note);
}

fn read_manifest(link: &Link, text: &str) -> Result<ServerCapabilities, String> {
    let manifest = ServerCapabilities::parse_manifest(text).map_err(|why| why.to_string())?;
    if manifest.features.version != McplVersion::V0_5 {
        return Err(format!("it is of MCPL {}", manifest.version));
    }
    for why in &manifest.sets.rejected {
        link.log.push_note(why);
    }
    // The comparison decides; a wrong revision is only a defect (0.5 §17.2).
    match manifest::check_revision(text) {
        Ok(true) => {}
        Ok(false) => link
            .log
            .push_note("the revision of its manifest is not its digest"),
        Err(DigestError { identifier }) => {
            let note = format!("its manifest has no digest: {identifier:?} is no identifier");
            link.log.push_note(&note);
        }
    }
    Ok(manifest)
}
