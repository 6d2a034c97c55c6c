//! Arguments of a call, however hostile, are judged to the end: paths, commands, SQL, addresses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_screening::{ScreenedCall, Validators};

fuzz_target!(|input: (u8, &str)| {
    let (which, text) = input;
    let key = ["command", "sql", "url", "path", "host", "args"][usize::from(which) % 6];
    let one = serde_json::json!({ key: text }).to_string();
    let roots = ["/home/me/project".to_owned()];
    for args in [one.as_str(), text] {
        for validator in ["sandbox", "readonly", "network_restricted"] {
            let call = ScreenedCall {
                tool: "run_command",
                args,
                roots: &roots,
                ..ScreenedCall::default()
            };
            let _ = Validators::from_names([validator]).check(&call, |_| Ok::<(), ()>(()));
        }
    }
});
