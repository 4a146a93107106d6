# Recoded for Nix: programs with UDP sockets (docs/static.md compares them), and a NixOS module.
#   nix build .
{
  description = "Recoded: IP over paths of lossy links";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      manifest = builtins.fromTOML (builtins.readFile ./Cargo.toml);
      systems = [ "x86_64-linux" "aarch64-linux" ];
      package = pkgs: pkgs.rustPlatform.buildRustPackage {
        pname = "recoded";
        version = manifest.workspace.package.version;
        src = self;
        cargoLock.lockFile = ./Cargo.lock;
        # AF_XDP needs clang and libelf; without it a C compiler is enough.
        buildNoDefaultFeatures = true;
        buildFeatures = [ "recoded/bats" "recodectl/bats" "recodectl/top" "recodectl/web" ];
        cargoBuildFlags = map (name: "--package=${name}")
          [ "recoded" "recodectl" "recoded-split" "recoded-agent" ];
        # scripts/test tests; many tests need namespaces.
        doCheck = false;
        installPhase = ''
          runHook preInstall
          built=$(dirname "$(find target -path '*/release/recoded' -type f)")
          bash scripts/install "$NIX_BUILD_TOP/tree" --programs "$built" --prefix "$out"
          cp -r "$NIX_BUILD_TOP/tree/$out" "$out"
          cp -r "$NIX_BUILD_TOP/tree/etc" "$out/etc"
          runHook postInstall
        '';
        meta = {
          description = "IP over paths of lossy links, with recoding at every hop";
          license = with nixpkgs.lib.licenses; [ mit asl20 ];
          platforms = systems;
          mainProgram = "recodectl";
        };
      };
    in
    {
      packages = nixpkgs.lib.genAttrs systems (system: {
        default = package nixpkgs.legacyPackages.${system};
      });

      nixosModules.default = { config, lib, pkgs, ... }:
        let cfg = config.services.recoded;
        in {
          options.services.recoded = {
            enable = lib.mkEnableOption "the Recoded daemon";
            package = lib.mkOption {
              type = lib.types.package;
              default = self.packages.${pkgs.stdenv.hostPlatform.system}.default;
              defaultText = "the package of this flake";
              description = "Package of the programs and the unit.";
            };
            configuration = lib.mkOption {
              type = lib.types.lines;
              example = ''
                [boxes]
                server = { at = "vpn.example.net", key = "...", tunnel = "10.99.0.1/24" }
                laptop = { key = "...", tunnel = "10.99.0.2/24" }
              '';
              description = "Text of /etc/recoded/recoded.toml. Private keys stay in files of their own.";
            };
          };
          config = lib.mkIf cfg.enable {
            environment.systemPackages = [ cfg.package ];
            environment.etc."recoded/recoded.toml".text = cfg.configuration;
            systemd.packages = [ cfg.package ];
            systemd.services.recoded.wantedBy = [ "multi-user.target" ];
            users.users.recoded = { isSystemUser = true; group = "recoded"; };
            users.groups.recoded = { };
            networking.firewall.allowedUDPPorts = [ 9426 ];
          };
        };
    };
}
