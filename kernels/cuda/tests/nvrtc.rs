//! NVIDIA's run-time compiler accepts the source for Reed-Solomon codes; if `scripts/cuda` has
//! fetched it, for it needs no card.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use recoded_code::reed_solomon::ReedSolomon;
use recoded_cuda::reed_solomon_source::{PRELUDE, PRODUCTS_MAX, source};

/// The folder of its libraries.
fn folder() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let versions = fs::read_dir(target.join("cuda/toolchain/lib")).ok()?;
    let folders = versions.flatten().map(|python| python.path().join(LIBRARIES));
    folders.into_iter().find(|folder| folder.join("libnvrtc.so.13").is_file())
}

const LIBRARIES: &str = "site-packages/nvidia/cu13/lib";

type Program = *mut c_void;

/// The compiler, loaded.
struct Nvrtc {
    library: Library,
    // It looks this one up by name, and finds it if it is loaded already.
    _builtins: Library,
}

impl Nvrtc {
    fn open(folder: &Path) -> Self {
        let open = |name: &str| {
            // SAFETY: the libraries' initialisers have no requirements.
            unsafe { Library::open(Some(folder.join(name)), RTLD_NOW | RTLD_GLOBAL) }
        };
        let builtins = open("libnvrtc-builtins.so.13.0").expect("part of the package");
        Self { library: open("libnvrtc.so.13").expect("just seen"), _builtins: builtins }
    }

    /// Compiles `text` for a card; returns the compiler's log, which names registers and spills.
    fn compile(&self, text: &str, card: &str) -> Result<String, String> {
        let text = CString::new(text).expect("no zero bytes");
        let options = [format!("--gpu-architecture={card}"), "--std=c++17".into(), VERBOSE.into()];
        let options = options.map(|option| CString::new(option).expect("no zero bytes"));
        let pointers = options.each_ref().map(|option| option.as_ptr());
        let mut program: Program = ptr::null_mut();
        // SAFETY: signatures and arguments are those of nvrtc.h; texts outlive the calls.
        unsafe {
            let create = self.library.get::<Create>(b"nvrtcCreateProgram\0").expect("API");
            let compile = self.library.get::<Compile>(b"nvrtcCompileProgram\0").expect("API");
            let (none, name) = (ptr::null(), c"reed_solomon.cu".as_ptr());
            assert_eq!(create(&mut program, text.as_ptr(), name, 0, none, none), 0);
            let status = compile(program, pointers.len() as c_int, pointers.as_ptr());
            let log = self.log(program);
            if status == 0 { Ok(log) } else { Err(log) }
        }
    }

    /// # Safety
    /// `program` must have been compiled.
    unsafe fn log(&self, program: Program) -> String {
        // SAFETY: signatures are those of nvrtc.h, and the log fits the size that it gives.
        unsafe {
            let size = self.library.get::<LogSize>(b"nvrtcGetProgramLogSize\0").expect("API");
            let get = self.library.get::<Log>(b"nvrtcGetProgramLog\0").expect("API");
            let mut bytes = 0;
            assert_eq!(size(program, &mut bytes), 0);
            let mut log = vec![0_u8; bytes + 1];
            assert_eq!(get(program, log.as_mut_ptr().cast()), 0);
            let text = CStr::from_bytes_until_nul(&log).expect("one zero more than it writes");
            text.to_string_lossy().into_owned()
        }
    }
}

const VERBOSE: &str = "--ptxas-options=-v";

type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type LogSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Log = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

#[test]
fn written_kernels_compile_without_spills() {
    let Some(folder) = folder() else {
        println!("skipped: no run-time compiler in the build folder; scripts/cuda --fetch has it");
        return;
    };
    let nvrtc = Nvrtc::open(&folder);
    // Small, common, and the largest worthwhile one.
    for (data, parity, card) in
        [(2, 1, "sm_75"), (10, 4, "sm_75"), (10, 4, "sm_90a"), (32, 16, "sm_89"), (64, 16, "sm_80")]
    {
        assert!(data * parity <= PRODUCTS_MAX);
        let code = ReedSolomon::new(data, parity).expect("a small code");
        let text = PRELUDE.to_owned() + &source("reed_solomon", code.generator(), data);
        let log = nvrtc.compile(&text, card).unwrap_or_else(|log| panic!("{data}+{parity}: {log}"));
        assert!(log.contains("recoded_reed_solomon"), "{log}");
        assert!(log.contains(" 0 bytes spill stores"), "{data}+{parity} for {card} spills: {log}");
    }
}
