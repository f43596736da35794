variable "project" {
  description = "The project that pays for the cluster."
  type        = string
}

variable "name" {
  description = "Name of the cluster."
  type        = string
  default     = "sterna"
}

variable "zone" {
  description = "One zone: workers that train together should be near each other."
  type        = string
  default     = "asia-southeast1-a"
}

variable "nodes" {
  description = "How many nodes."
  type        = number
  default     = 3
}

variable "machine_type" {
  description = "Four cores and 16 GB each, as in the evaluation."
  type        = string
  default     = "e2-standard-4"
}
