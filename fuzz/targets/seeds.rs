//! Part of each target: writes the seeds of its law instead of fuzzing, if asked to by the environment.

use std::path::Path;

/// `TAPLINE_SEEDS=FOLDER`: makes `FOLDER/seed-NUMBER` and ends the program.
pub fn write_if_asked(name: &str) {
    let Some(folder) = std::env::var_os("TAPLINE_SEEDS") else { return };
    let folder = Path::new(&folder);
    let law = tapline_fuzz::LAWS.iter().find(|law| law.name == name).expect("a law of this name");
    std::fs::create_dir_all(folder).expect("the folder can be made");
    for (number, seed) in (law.seeds)().iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), seed).expect("seeds can be written");
    }
    std::process::exit(0);
}
