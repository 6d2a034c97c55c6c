//! The agent of macOS' launchd. Only its file is written; `launchctl load` loads it.

use super::{ServiceFile, ServiceSpec};

const LABEL: &str = "org.mgp.kernel";

pub(super) fn service_files(service: &ServiceSpec) -> Vec<ServiceFile> {
    let path = format!("Library/LaunchAgents/{LABEL}.plist");
    vec![ServiceFile {
        path: service.home.join(path),
        text: render_plist(service),
    }]
}

fn render_plist(service: &ServiceSpec) -> String {
    let exe = service.exe.to_string_lossy().into_owned();
    let words = [exe, "service".into(), "run".into()].into_iter();
    let words: String = words
        .chain(service.options.iter().cloned())
        .map(|word| format!("\t\t<string>{}</string>\n", escape_xml(&word)))
        .collect();
    let log = service.home.join("Library/Logs/mgp.log");
    let log = escape_xml(&log.to_string_lossy());
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">
<plist version=\"1.0\">
<dict>
\t<key>Label</key>
\t<string>{LABEL}</string>
\t<key>ProgramArguments</key>
\t<array>
{words}\t</array>
\t<key>RunAtLoad</key>
\t<true/>
\t<key>KeepAlive</key>
\t<dict>
\t\t<key>SuccessfulExit</key>
\t\t<false/>
\t</dict>
\t<key>Umask</key>
\t<integer>63</integer>
\t<key>StandardErrorPath</key>
\t<string>{log}</string>
</dict>
</plist>
"
    )
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_one_string_of_the_agent() {
        let service = ServiceSpec {
            exe: "/Users/a&b/mgp".into(),
            options: vec!["--config".into(), "/x <y>.toml".into()],
            socket: "/s".into(),
            runtime: None,
            home: "/Users/a&b".into(),
        };
        let [file] = service_files(&service).try_into().ok().unwrap();
        assert!(
            file.path
                .ends_with("Library/LaunchAgents/org.mgp.kernel.plist")
        );
        for word in [
            "/Users/a&amp;b/mgp",
            "service",
            "run",
            "--config",
            "/x &lt;y&gt;.toml",
        ] {
            assert!(
                file.text.contains(&format!("<string>{word}</string>")),
                "{word}"
            );
        }
        assert!(
            file.text
                .contains("<string>/Users/a&amp;b/Library/Logs/mgp.log</string>")
        );
    }
}
