//! `mgp metrics`: metrics for users and for Prometheus.

use std::fmt::Write;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::{Metrics, MetricsText};
use serde_json::json;

use crate::cli::args;
use crate::cli::client::CliContext;
use crate::cli::failure::Failure;
use crate::cli::print::print_line;

pub(in crate::cli::commands) fn show(
    context: &CliContext,
    typed: &args::Metrics,
) -> Result<(), Failure> {
    let params = json!({"open_metrics": typed.openmetrics});
    let answer = context.call(Metrics::METHOD, &params, "reading the figures")?;
    context.print_answer(&answer, |told: MetricsText| {
        if !typed.scrape_config {
            print_line(told.text.trim_end())
        } else {
            print_line(scrape_config(&told)?.trim_end())
        }
    })
}

/// A Prometheus job for `scrape_configs`.
fn scrape_config(told: &MetricsText) -> Result<String, Failure> {
    let Some((url, file)) = told.url.as_ref().zip(told.token_file.as_ref()) else {
        return Err(Failure::Other(
            "the HTTP door shows no figures: set `enabled = true` in [http] and in [metrics], then `mgp down && mgp up`"
                .into(),
        ));
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let target = rest.split('/').next().unwrap_or(rest);
    let mut text = format!(
        "scrape_configs:\n  - job_name: mgp\n    scheme: {scheme}\n    static_configs:\n      - targets: [{}]\n",
        json!(target)
    );
    if scheme == "https" {
        text += "    # Where no authority of the system signed the kernel's certificate, name the one that did:\n    # tls_config: { ca_file: /path/to/ca.pem }\n";
    }
    if !told.loopback {
        let _ = writeln!(
            text,
            "    authorization:\n      credentials_file: {}",
            json!(file)
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0066: the job names the file of the token, and never the token.
    #[test]
    fn a_prometheus_job_names_the_url_and_the_token_file() {
        let mut told = MetricsText {
            text: String::new(),
            url: Some("http://127.0.0.1:7332/metrics".into()),
            token_file: Some("/data/metrics.token".into()),
            loopback: false,
        };
        let want = "scrape_configs:\n  - job_name: mgp\n    scheme: http\n    static_configs:\n      - targets: [\"127.0.0.1:7332\"]\n    authorization:\n      credentials_file: \"/data/metrics.token\"\n";
        assert_eq!(scrape_config(&told).unwrap(), want);
        told.loopback = true;
        assert!(!scrape_config(&told).unwrap().contains("token"));
        told.url = Some("https://[::1]:7332/metrics".into());
        let over_tls = scrape_config(&told).unwrap();
        assert!(
            over_tls.contains("scheme: https")
                && over_tls.contains("[\"[::1]:7332\"]")
                && over_tls.contains("ca_file"),
            "{over_tls}"
        );
        told.url = None;
        assert!(scrape_config(&told).is_err());
    }
}
