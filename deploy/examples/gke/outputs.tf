output "credentials_command" {
  description = "Puts the cluster into your kubeconfig."
  value       = "gcloud container clusters get-credentials ${google_container_cluster.training.name} --zone ${var.zone} --project ${var.project}"
}
