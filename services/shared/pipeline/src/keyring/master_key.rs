//! Where does the one key come from that opens all others?

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::{Zeroize as _, Zeroizing};

/// The key that wraps every owner's key. It stands outside the data folder: in a file or a variable.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    #[error("the master key must be 32 bytes, as 64 hexadecimal digits or in base64")]
    Form,
    #[error("the environment variable {variable} with the master key is not set")]
    NotSet { variable: String },
    #[error(
        "the environment variable {variable} holds no master key: 64 hexadecimal digits or base64"
    )]
    BadVariable { variable: String },
    #[error("{path} holds no master key: 64 hexadecimal digits or base64 of 32 bytes")]
    BadFile { path: String },
    #[error("{path} is empty: its creation was interrupted; delete it if there is no keyring yet")]
    Empty { path: String },
    #[error("others can read {path}, which holds the master key: chmod 600 {path}")]
    Open { path: String },
    #[error("cannot read or write the master key in {path}: {source}")]
    Io { path: String, source: io::Error },
}

impl MasterKey {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A new key, from the operating system.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn draw() -> Result<Self, io::Error> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// # Errors
    /// [`MasterKeyError::Form`]; the text is not repeated.
    pub fn parse(text: &str) -> Result<Self, MasterKeyError> {
        let text = text.trim();
        if let Some(hash) = anamnesis_domain::ids::Hash::from_hex(text) {
            return Ok(Self::from_bytes(hash.0));
        }
        let mut bytes = STANDARD.decode(text).map_err(|_| MasterKeyError::Form)?;
        let key = <[u8; 32]>::try_from(&bytes[..]).map(Self::from_bytes);
        bytes.zeroize();
        key.map_err(|_| MasterKeyError::Form)
    }

    /// # Errors
    /// When the variable is missing or holds no key.
    pub fn from_env(variable: &str) -> Result<Self, MasterKeyError> {
        let variable = || variable.to_owned();
        let text = std::env::var(variable()).map(Zeroizing::new);
        let text = text.map_err(|_| MasterKeyError::NotSet {
            variable: variable(),
        })?;
        Self::parse(&text).map_err(|_| MasterKeyError::BadVariable {
            variable: variable(),
        })
    }

    /// Reads the key from a file that nobody else can read.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do.
    pub fn from_file(path: &Path) -> Result<Self, MasterKeyError> {
        let failed = |source| MasterKeyError::Io {
            path: path.display().to_string(),
            source,
        };
        check_private(path)?;
        let text = Zeroizing::new(fs::read_to_string(path).map_err(failed)?);
        let named = || path.display().to_string();
        if text.trim().is_empty() {
            return Err(MasterKeyError::Empty { path: named() });
        }
        Self::parse(&text).map_err(|_| MasterKeyError::BadFile { path: named() })
    }

    /// As [`MasterKey::from_file`]; a file that is not there is made with a new key. It appears under
    /// its name when it is complete and on the disk, and of several that are made at once one remains.
    ///
    /// # Errors
    /// As [`MasterKey::from_file`].
    pub fn from_file_or_new(path: &Path) -> Result<Self, MasterKeyError> {
        let failed = |source| MasterKeyError::Io {
            path: path.display().to_string(),
            source,
        };
        if path.try_exists().map_err(failed)? {
            return Self::from_file(path);
        }
        let dir = path
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        fs::create_dir_all(dir).map_err(failed)?;
        let key = Self::draw().map_err(failed)?;
        let part = part_name(path).map_err(failed)?;
        let linked = key
            .write_private(&part)
            .and_then(|()| match fs::hard_link(&part, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                linked => linked.map(|()| true),
            });
        // What remains of it after a kill is a key that nobody uses.
        let removed = fs::remove_file(&part);
        let is_ours = linked.map_err(failed)?;
        removed.map_err(failed)?;
        // Keys that are wrapped by it must not outlive its name, whoever gave it.
        sync_folder(dir).map_err(failed)?;
        if is_ours {
            Ok(key)
        } else {
            Self::from_file(path)
        }
    }

    fn write_private(&self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = Zeroizing::new(digits + "\n");
        file.write_all(line.as_bytes())?;
        file.sync_all()
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Beside the file, hidden, and nobody else's.
fn part_name(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{:016x}.part", u64::from_le_bytes(random)));
    Ok(path.with_file_name(name))
}

/// Makes the names of new files in `dir` survive a loss of power.
fn sync_folder(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(unix)]
fn check_private(path: &Path) -> Result<(), MasterKeyError> {
    use std::os::unix::fs::PermissionsExt as _;
    let named = || path.display().to_string();
    let metadata = fs::metadata(path).map_err(|source| MasterKeyError::Io {
        path: named(),
        source,
    })?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(MasterKeyError::Open { path: named() });
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_private(_path: &Path) -> Result<(), MasterKeyError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_in_both_forms() {
        let key = MasterKey::from_bytes([0xab; 32]);
        for text in [
            "ab".repeat(32),
            format!(" {}\n", "AB".repeat(32)),
            STANDARD.encode([0xab; 32]),
        ] {
            assert!(MasterKey::parse(&text).unwrap().0 == key.0);
        }
        for text in [
            "",
            "ab",
            "not a key",
            &"ab".repeat(31),
            &STANDARD.encode([1; 31]),
        ] {
            assert!(MasterKey::parse(text).is_err(), "{text}");
        }
        assert_eq!(format!("{key:?}"), "MasterKey(…)");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_made_once_and_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret/master.key");
        let key = MasterKey::from_file_or_new(&path).unwrap();
        assert!(MasterKey::from_file_or_new(&path).unwrap().0 == key.0);
        assert!(MasterKey::from_file(&path).unwrap().0 == key.0);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            MasterKey::from_file(&path),
            Err(MasterKeyError::Open { .. })
        ));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "").unwrap();
        assert!(matches!(
            MasterKey::from_file_or_new(&path),
            Err(MasterKeyError::Empty { .. })
        ));
        fs::write(&path, "hello").unwrap();
        assert!(matches!(
            MasterKey::from_file(&path),
            Err(MasterKeyError::BadFile { .. })
        ));
        assert!(MasterKey::from_file(&dir.path().join("none")).is_err());
    }

    fn names_in(dir: &Path) -> Vec<OsString> {
        fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect()
    }

    #[test]
    fn first_starts_at_once_agree_on_one_key() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("master.key");
            let start = std::sync::Barrier::new(8);
            let make = || {
                start.wait();
                MasterKey::from_file_or_new(&path).unwrap()
            };
            let keys: Vec<MasterKey> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
                let joined = threads.into_iter().map(|thread| thread.join().unwrap());
                joined.collect()
            });
            assert!(keys.iter().all(|key| key.0 == keys[0].0));
            assert!(MasterKey::from_file(&path).unwrap().0 == keys[0].0);
            assert_eq!(names_in(dir.path()), ["master.key"], "no parts are left");
        }
    }

    #[test]
    fn what_a_kill_left_behind_does_not_hinder_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        // Killed before the link: a part, whole or not, and no file of the name.
        let part = part_name(&path).unwrap();
        fs::write(&part, "0123").unwrap();
        let key = MasterKey::from_file_or_new(&path).unwrap();
        assert!(MasterKey::from_file(&path).unwrap().0 == key.0);
        assert_eq!(fs::read_to_string(&part).unwrap(), "0123");
        assert!(part_name(&path).unwrap() != part);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let path = dir.path().join("file/master.key");
        let refused = MasterKey::from_file_or_new(&path).unwrap_err();
        assert!(refused.to_string().contains("master.key"), "{refused}");
    }
}
