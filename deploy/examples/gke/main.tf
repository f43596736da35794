# The cluster on which container-migration was evaluated: three e2-standard-4 nodes on Google Kubernetes Engine, with a
# current Kubernetes. Sterna is installed into it afterwards:
#
#   terraform init && terraform apply -var project=MY-PROJECT
#   $(terraform output -raw credentials_command)
#   kubectl apply --server-side -f ../../sterna.yaml

terraform {
  required_version = ">= 1.5"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0, < 8.0"
    }
  }
}

provider "google" {
  project = var.project
  zone    = var.zone
}

resource "google_service_account" "nodes" {
  account_id   = "${var.name}-nodes"
  display_name = "Nodes of the cluster ${var.name}"
}

resource "google_project_iam_member" "nodes" {
  project = var.project
  role    = "roles/container.defaultNodeServiceAccount"
  member  = "serviceAccount:${google_service_account.nodes.email}"
}

resource "google_container_cluster" "training" {
  name     = var.name
  location = var.zone

  # The pool below is the only one, so that its nodes can be replaced without the cluster.
  initial_node_count       = 1
  remove_default_node_pool = true
  deletion_protection      = false

  release_channel {
    channel = "REGULAR"
  }

  workload_identity_config {
    workload_pool = "${var.project}.svc.id.goog"
  }
}

resource "google_container_node_pool" "workers" {
  name       = "workers"
  cluster    = google_container_cluster.training.name
  location   = var.zone
  node_count = var.nodes

  # Sterna counts on nodes that stay; a pool that shrinks takes running workers with it.
  management {
    auto_repair  = true
    auto_upgrade = true
  }

  node_config {
    machine_type    = var.machine_type
    service_account = google_service_account.nodes.email
    oauth_scopes    = ["https://www.googleapis.com/auth/cloud-platform"]

    workload_metadata_config {
      mode = "GKE_METADATA"
    }
  }
}
