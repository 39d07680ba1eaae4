//! What does intake make of each sample event? Reads `event-samples/` below the folder that
//! `ANAMNESIS_DATA` names, or the files given, and prints messages or the refusal.

use anamnesis_domain::time::Timestamp;
use anamnesis_intake::import::{Options, detect_and_read, values};
use anamnesis_pipeline::clock::{Clock as _, SystemClock};

fn main() {
    let now: Timestamp = SystemClock.now();
    let mut files: Vec<std::path::PathBuf> = std::env::args().skip(1).map(Into::into).collect();
    if files.is_empty() {
        let Ok(data) = std::env::var("ANAMNESIS_DATA") else {
            eprintln!("set ANAMNESIS_DATA to the folder that holds event-samples/, or name files");
            std::process::exit(2);
        };
        let folder = std::path::Path::new(&data).join("event-samples");
        let entries = std::fs::read_dir(folder).expect("the folder of samples");
        files = entries.map(|entry| entry.expect("a file").path()).collect();
        files.sort();
    }
    for path in files {
        let bytes = std::fs::read(&path).expect("a readable file");
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let (mut accepted, mut refused) = (0, 0);
        for (position, value) in values(&bytes) {
            let mut options = Options::new("ward", &name, now);
            options.position = position;
            match value.and_then(|value| detect_and_read(&value, &options)) {
                Ok(messages) => {
                    accepted += messages.len();
                    if position == 1 {
                        for m in messages {
                            let text: String = m.text.expose().chars().take(40).collect();
                            println!(
                                "{name}: {} {} {:?} {} {} {text}",
                                m.owner,
                                m.public_id(),
                                m.conversation_id,
                                m.role,
                                m.at
                            );
                        }
                    }
                }
                Err(rejected) => {
                    refused += 1;
                    if refused <= 3 {
                        println!(
                            "{name}: {} {:?}: {}",
                            rejected.code, rejected.field, rejected.detail
                        );
                    }
                }
            }
        }
        println!("{name}: {accepted} messages, {refused} refused");
    }
}
