//! Where is the ONNX runtime's shared library, and is it loaded? One per process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anamnesis_pipeline::embedder::EmbedError;
use ort::environment::Environment;

use super::unusable;

/// The library that this process has loaded, and its environment, which lives as long as the process.
static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

const NAMES: [&str; 2] = ["libonnxruntime.so", "libonnxruntime.dylib"];

pub(super) fn environment(dir: &Path, named: Option<&Path>) -> Result<Environment, EmbedError> {
    let library = find(dir, named)?;
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*loaded {
        Some((path, environment)) if *path == library => return Ok(environment.clone()),
        Some((path, _)) => {
            return Err(unusable(format!(
                "{} cannot be loaded beside {}",
                library.display(),
                path.display()
            )));
        }
        None => (),
    }
    let failed = |reason: String| unusable(format!("{}: {reason}", library.display()));
    let builder = ort::init_from(&library).map_err(|error| failed(error.to_string()))?;
    let environment = builder
        .with_telemetry(false)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    *loaded = Some((library, environment.clone()));
    Ok(environment)
}

/// The library as an absolute path: a relative one would be looked for beside the program.
fn find(dir: &Path, named: Option<&Path>) -> Result<PathBuf, EmbedError> {
    let place = named.unwrap_or(dir);
    let library = if place.is_dir() {
        NAMES
            .iter()
            .map(|name| place.join(name))
            .find(|path| path.exists())
    } else {
        Some(place.to_owned())
    };
    let Some(library) = library else {
        return Err(unusable(format!(
            "there is no {} in {}",
            NAMES[0],
            place.display()
        )));
    };
    library
        .canonicalize()
        .map_err(|error| unusable(format!("{}: {error}", library.display())))
}
